"""Work that is begun ahead changes nothing but the time."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import threading
from pathlib import Path

import pytest

from unrank import disk
from unrank.cli import ahead
from unrank.disk import sha256, sha256_once
from unrank.owner import remember


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_files_of_a_ranker_its_base_and_its_proxies_are_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNRANK_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(disk, "SETTLED", 0)
    names = ("ranker", "base", "proxies/one", "proxies/of-another")
    paths = [written(tmp_path / name / "model.safetensors", name.encode()) for name in names]
    for name, base in (("ranker", "d"), ("proxies/one", "d"), ("proxies/of-another", "e")):
        written(tmp_path / name / "unrank.json", json.dumps({"ranker": "colbert", "base_digest": base}).encode())
    assert remember("base", "d", str(tmp_path / "base"))
    assert remember("proxies", "key", f"{tmp_path / 'gone'}\n{tmp_path / 'proxies'}")
    ahead.begin(lambda: ahead.hash_files(str(tmp_path / "ranker"))).join()
    monkeypatch.setattr(disk, "_digest", lambda file: "hashed now")
    assert [sha256_once(path) for path in paths] == [*map(sha256_of, names[:3]), "hashed now"]


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_what_goes_wrong_ahead_is_left_to_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(ahead, "DRIVER", "libno-such-driver.so")
    with pytest.raises(OSError, match="libno-such-driver"):
        ahead.open_gpu()
    written(tmp_path / "unrank.json", b"no JSON")
    ahead.begin(ahead.open_gpu, lambda: ahead.hash_files(str(tmp_path)), lambda: done.append("after")).join()
    assert done == ["after"]


def test_one_of_several_processes_opens_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    opened: list[str] = []
    monkeypatch.setattr(ctypes, "CDLL", opened.append)
    ahead.open_gpu()
    assert opened == []


def test_a_copy_of_the_process_can_hash_while_a_thread_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, other = written(tmp_path / "slow", b"a"), written(tmp_path / "other", b"b")
    begun, go_on = threading.Event(), threading.Event()

    def wait(file: object) -> str:
        begun.set()
        go_on.wait(10)
        return "hash"

    monkeypatch.setattr(disk, "_digest", wait)
    thread = ahead.begin(lambda: print(sha256_once(slow)))
    assert begun.wait(10)
    threading.Timer(0.2, go_on.set).start()
    child = os.fork()
    if not child:
        monkeypatch.undo()
        os._exit(0 if sha256_once(other) == sha256(other) else 1)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
