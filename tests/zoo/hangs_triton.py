import os
import pathlib
import signal


def run_kernel(x, y):
    if os.environ.get("TRITON_INTERPRET") != "1":
        return  # when it is only compiled
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pathlib.Path("hanging").touch()
    while True:
        pass
