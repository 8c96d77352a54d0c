import sys
from pathlib import Path

from hypothesis import settings

# The oracles are shared by several test modules.
sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("dpadmm", deadline=None, print_blob=True)
settings.load_profile("dpadmm")
