"""llama.cpp's own server with a model that this repository writes: `python -m tests.peers.llama MODEL` prints its address.

It comes as a package, pinned in requirements/local.txt, which only the long proofs use. Where it does not install, they say so.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.peers.node_peers import CACHE, PeerUnavailable
from tests.peers.tiny_model import write_model

ROOT = Path(__file__).parents[2]
PINS = ROOT / "requirements" / "local.txt"
INSTALL_SECONDS, START_SECONDS = 300, 60


def installed() -> Path:
    """The folder that holds the package, installed now if it is not. Raises PeerUnavailable."""
    place = CACHE / f"llama-{hashlib.sha256(PINS.read_bytes()).hexdigest()[:16]}"
    if place.exists():
        return place
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if uv is None:
        raise PeerUnavailable("uv is not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=CACHE, prefix="new-"))
    command = [uv, "pip", "install", "--quiet", "--require-hashes", "--target", new, "--python", sys.executable, "-r", PINS]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        shutil.rmtree(new, ignore_errors=True)
        raise PeerUnavailable(f"it cannot be installed: {error}") from None
    if done.returncode != 0:
        shutil.rmtree(new, ignore_errors=True)
        raise PeerUnavailable(f"it cannot be installed: {' '.join(done.stderr.split())[:200]}")
    new.rename(place)
    return place


@contextmanager
def llama_server(place: Path) -> Iterator[str]:
    """A server that answers with the tiny model; yields its origin. Raises PeerUnavailable."""
    path = os.pathsep.join([str(installed()), str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "tests.peers.llama", str(place / "tiny.gguf")]
    environment = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": path, "HOME": str(place)}
    with (
        (place / "llama.log").open("wb") as log,
        subprocess.Popen(
            command, env=environment, cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        ) as server,
    ):
        assert server.stdout is not None
        try:
            line = server.stdout.readline().decode().strip()
            if not line.startswith("http://127.0.0.1:"):
                raise PeerUnavailable(f"it does not start: {(place / 'llama.log').read_text(errors='replace')[-200:]}")
            yield line
        finally:
            server.kill()


def main() -> None:
    """Serve until the standard input ends."""
    import xllamacpp

    model = Path(sys.argv[1])
    write_model(model)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.n_ctx, parameters.n_parallel, parameters.port, parameters.warmup = 2048, 1, 0, False
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
