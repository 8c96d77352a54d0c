"""Starts nodes quickly: everything is imported once, and every node is a fork.

Orders come as lines of JSON. ``{"start": [words of a dpadmm command], "output": file, "folder":
where}`` is answered with the number of the process, ``{"wait": number}`` with its exit code;
``{"warm": true}`` compiles what would otherwise be compiled in every fork.
"""

import json
import os
import sys

import numpy as np

import dpadmm.federation.node
from dpadmm import ADMMClassifier
from dpadmm.cli import main


def child(words, output, folder):
    # A process group of its own, and nothing shared with the one who waits.
    os.setsid()
    handle = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    for descriptor in (1, 2):
        os.dup2(handle, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    code = 70
    os.chdir(folder)
    try:
        main(words)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def warm():
    for algorithm in ("scas-admm", "ps-admm"):
        classifier = ADMMClassifier(algorithm, rounds=1, n_parties=2, random_state=0, delta=1e-3)
        classifier.fit(np.eye(8), [0, 1] * 4)


def serve():
    assert dpadmm.federation.node
    for line in sys.stdin:
        order = json.loads(line)
        if "start" in order:
            answer = os.fork()
            if answer == 0:
                child(order["start"], order["output"], order["folder"])
        elif "warm" in order:
            warm()
            answer = 0
        else:
            _, status = os.waitpid(order["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
