"""How the tests run the lowtide program."""

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
PROGRAM = shutil.which("lowtide", path=PATH) or "lowtide"
CLEAR = "\r\x1b[K"  # how a line of progress is overwritten


def run(*arguments: str | bytes, cwd: Path, path: str = PATH) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": path}
    command = [PROGRAM, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)


def on_terminal(*arguments: str, cwd: Path) -> tuple[int, str, str]:
    """Exit code, standard output, and what a terminal at standard error was sent."""
    leader, follower = pty.openpty()
    process = subprocess.Popen([PROGRAM, *arguments], cwd=cwd, stdout=subprocess.PIPE, stderr=follower, text=True)
    os.close(follower)
    sent = b""
    while True:
        try:
            piece = os.read(leader, 4096)
        except OSError:  # what Linux gives when the other side is closed
            break
        if not piece:
            break
        sent += piece
    os.close(leader)
    output = process.communicate(timeout=60)[0]
    return process.returncode, output, sent.decode()
