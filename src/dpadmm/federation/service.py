"""x"""
from pathlib import Path
def placed(config, folder: Path):
    return config
