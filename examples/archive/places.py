"""Where captures and results are: a folder, or an object store that fsspec knows (`pip install fsspec s3fs`)."""

import contextlib
import json
import os
import pathlib
import shutil
import tempfile


def is_url(path):
    return "://" in path


def file_system(url):
    """The file system of a URL, and the path in it."""
    import fsspec

    return fsspec.core.url_to_fs(url)


def open_place(place):
    return Store(place) if is_url(place) else Folder(place)


def captures(word, endings):
    """The captures that a word of the command line names: itself, or all in a folder."""
    if not is_url(word):
        # The name of a capture is the same wherever a command is given.
        word = os.path.abspath(word)
        if not os.path.isdir(word):
            return [word]
        # A folder that can't be read is an error: its captures would be missing silently.
        found = [os.path.join(at, name) for at, _, names in os.walk(word, onerror=raise_it) for name in names]
        return sorted(path for path in found if path.endswith(endings))
    fs, path = file_system(word)
    paths = [path] if fs.isfile(path) else fs.find(path)
    return sorted(fs.unstrip_protocol(path) for path in paths if path.endswith(endings))


def raise_it(error):
    raise error


def real(path):
    """The same for two paths of one file."""
    return path if is_url(path) else os.path.realpath(path)


def identity(path):
    """Bytes of a capture, and what changes when it does."""
    if is_url(path):
        fs, path = file_system(path)
        info = fs.info(path)
        return info["size"], str(info.get("ETag") or info.get("mtime") or "")
    info = os.stat(path)
    return info.st_size, str(info.st_mtime_ns)


def fetch(path, folder):
    """A capture as a local file."""
    if not is_url(path):
        return path
    fs, path = file_system(path)
    # Two captures may have one name.
    local = os.path.join(tempfile.mkdtemp(dir=folder), os.path.basename(path))
    fs.get_file(path, local)
    return local


class Folder:
    """Results in a folder, which all machines share."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def scratch(self):
        """Where steps make their files: on the same disk, so that the last move is a rename."""
        folder = self.path / "scratch"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def names(self, folder):
        with contextlib.suppress(FileNotFoundError):
            return sorted(os.listdir(self.path / folder))
        return []

    def walk(self, folder):
        files = (path for path in (self.path / folder).rglob("*") if path.is_file())
        return sorted(path.relative_to(self.path).as_posix() for path in files)

    def read_json(self, name):
        """`None` if there is no such file, or half of one."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return json.loads((self.path / name).read_text())

    def write_json(self, name, value):
        self.write_text(name, json.dumps(value, indent=1, sort_keys=True) + "\n")

    def write_text(self, name, text):
        with tempfile.NamedTemporaryFile("w", dir=self.scratch(), delete=False) as file:
            file.write(text)
        os.chmod(file.name, 0o644)
        self.put(file.name, name)

    def fetch(self, name, _folder):
        return self.path / name

    def put(self, local, name):
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(local, self.path / name)

    def remove(self, name):
        (self.path / name).unlink(missing_ok=True)

    def clean(self):
        """Removes what killed steps left."""
        shutil.rmtree(self.path / "scratch", ignore_errors=True)


class Store:
    """Results in an object store. An object is there as a whole or not at all."""

    def __init__(self, url):
        self.fs, self.path = file_system(url.rstrip("/"))
        # Other machines write, too.
        self.fs.use_listings_cache = False

    def scratch(self):
        return None

    def names(self, folder):
        self.fs.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            return sorted(os.path.basename(path) for path in self.fs.ls(f"{self.path}/{folder}", detail=False))
        return []

    def walk(self, folder):
        self.fs.invalidate_cache()
        return sorted(path.removeprefix(f"{self.path}/") for path in self.fs.find(f"{self.path}/{folder}"))

    def read_json(self, name):
        with contextlib.suppress(FileNotFoundError, ValueError):
            return json.loads(self.fs.cat_file(f"{self.path}/{name}"))

    def write_json(self, name, value):
        self.fs.pipe_file(f"{self.path}/{name}", (json.dumps(value, indent=1, sort_keys=True) + "\n").encode())

    def fetch(self, name, folder):
        local = os.path.join(folder, os.path.basename(name))
        self.fs.get_file(f"{self.path}/{name}", local)
        return local

    def put(self, local, name):
        self.fs.put_file(str(local), f"{self.path}/{name}")

    def remove(self, name):
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm_file(f"{self.path}/{name}")

    def clean(self):
        pass
