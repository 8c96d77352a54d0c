"""Starts commands quickly: everything is imported once, and every command is a fork.

Orders come as lines of JSON. ``{"start": [words of a dpadmm command], "output": file, "folder":
where}`` is answered with the number of the process, ``{"wait": number}`` with its exit code;
``{"warm": true}`` compiles what would otherwise be compiled in every fork, ``{"ready": true}`` does
nothing.

At the socket that the first argument names, a command in a shell is answered: it sends its words,
folder and environment with its own input and outputs, and is told the exit code.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import socket
import sys
import threading
import warnings

import numpy as np

import dpadmm
from dpadmm import ADMMClassifier
from dpadmm.cli import main

MOST_BYTES = 1 << 20


def import_everything():
    """All rooms but Flower's, and what they import when it is first needed."""
    rooms = [f"dpadmm.{found.name}" for found in pkgutil.iter_modules(dpadmm.__path__)]
    rooms.remove("dpadmm.flower")
    for room in rooms:
        path = getattr(importlib.import_module(room), "__path__", [])
        for found in pkgutil.iter_modules(path, f"{room}."):
            # An extra that is not installed.
            with contextlib.suppress(ImportError):
                importlib.import_module(found.name)
    for late in ("dp_accounting.pld.pld_pmf", "networkx", "opendp.domains", "opendp.measurements"):
        with contextlib.suppress(ImportError):
            importlib.import_module(late)
    # What is here for good need not be looked at, and copied, in every fork.
    gc.freeze()


def run(words, folder, descriptors):
    """The exit code of a command with this input and these outputs."""
    for target, given in enumerate(descriptors):
        os.dup2(given, target)
    os.chdir(folder)
    sys.argv = ["dpadmm", *words]
    code = 70
    try:
        main(words)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return code


def child(words, output, folder):
    # A process group of its own, and nothing shared with the one who waits.
    os.setsid()
    written = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    return run(words, folder, (os.open(os.devnull, os.O_RDONLY), written, written))


def answer_shell(connection):
    """What a command in a shell asks for."""
    message, descriptors, _, _ = socket.recv_fds(connection, MOST_BYTES, 3)
    order = json.loads(message)
    os.environ.clear()
    os.environ.update(order["environment"])
    if action := order["environment"].get("PYTHONWARNINGS"):
        warnings.simplefilter(action)
    code = run(order["words"], order["folder"], descriptors)
    # As multiprocessing ends a fork: workers of the command would keep its outputs open.
    threading._shutdown()
    atexit._run_exitfuncs()
    connection.send(str(code).encode())
    return code


def forked(work, *arguments):
    """The number of a process that does this work and ends with the code that it returns."""
    number = os.fork()
    if number == 0:
        code = 70
        with contextlib.suppress(Exception):
            code = work(*arguments)
        os._exit(code)
    return number


def warm():
    for algorithm in ("scas-admm", "ps-admm"):
        classifier = ADMMClassifier(
            algorithm, rounds=1, n_parties=2, random_state=0, delta=1e-3, loss="logistic"
        )
        classifier.fit(np.eye(8), [0, 1] * 4)


def follow(order):
    if "start" in order:
        return forked(child, order["start"], order["output"], order["folder"])
    if "warm" in order:
        warm()
    if "wait" not in order:
        return 0
    _, status = os.waitpid(order["wait"], 0)
    return os.waitstatus_to_exitcode(status)


def serve(place):
    import_everything()
    answering = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(place)
        listener.listen()
        while True:
            ready, _, _ = select.select([sys.stdin, listener], [], [])
            answering = [number for number in answering if os.waitpid(number, os.WNOHANG)[0] == 0]
            if listener in ready:
                connection, _ = listener.accept()
                with connection:
                    answering.append(forked(answer_shell, connection))
            if sys.stdin in ready:
                line = sys.stdin.readline()
                if not line:
                    break
                sys.stdout.write(f"{follow(json.loads(line))}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
