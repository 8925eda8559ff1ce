"""Read the tensors of a pickled module without building anything that the pickle names.

``torch.save(module)`` writes a zip: ``data.pkl``, a pickle of the whole tree of objects, and one file a storage. The
ordinary way to read such a pickle runs whatever it says. Here its classes become *records*, inert dictionaries that
cannot be called; the calls that describe tensors are answered by a description; and a short list of names that modules
carry about (signatures, annotations, devices) is read over: a call of them gives a blank. Everything else is refused.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import torch
from torch import Tensor

__all__ = ["UnsafeFileError", "is_pickle", "read_module_tensors"]

_LARGEST = 2**31  # bytes of one member: far above any model of this kind
_MOST_TENSORS = 100_000
_DEEPEST = 100  # tuples within tuples: Python hashes them by recursion, without a look at how deep the stack is
_TYPES = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "BoolStorage": torch.bool,
    "ByteStorage": torch.uint8,
}


_BLANKS: dict[str, frozenset[str] | None] = {  # None: every name of the module
    "inspect": None,  # the signatures that a message-passing module keeps of its own functions
    "typing": None,
    "operator": frozenset({"getitem"}),  # how annotations such as Optional[Tensor] are written
    "functools": frozenset({"partial"}),
    "collections": frozenset({"defaultdict", "Counter", "deque"}),
    "builtins": frozenset({"type", "object", "int", "float", "bool", "str", "list", "tuple", "dict", "slice"}),
    "torch": frozenset({"device", "Size"}),
    "numpy": frozenset({"dtype", "ndarray"}),
    "numpy.core.multiarray": frozenset({"scalar", "_reconstruct"}),
    "_codecs": frozenset({"encode"}),
}
_BLANKS["__builtin__"] = _BLANKS["builtins"]
_BLANKS["_operator"] = _BLANKS["operator"]


class UnsafeFileError(ValueError):
    """A file that is damaged, or asks for more than tensors."""


def is_pickle(start: bytes) -> bool:
    r"""Whether a file that begins so is a pickle or torch's zip of one, and no safetensors file.

    The first eight bytes of a safetensors file are the length of its header, whose own first byte is ``{``; so a header
    of 128 bytes, or of 640, begins as pickles do.

    >>> is_pickle(b"\x80\x02}q\x00."), is_pickle((640).to_bytes(8, "little") + b'{"')
    (True, False)
    """
    return start.startswith((b"PK", b"\x80")) and start[3:9] != bytes(5) + b"{"


class _RecordType(type):
    """The type of every class that a pickle names: it cannot be called or changed."""

    def __call__(cls, *args: object, **kwargs: object) -> NoReturn:
        raise UnsafeFileError(f"it asks to call {cls.__name__}(...)")

    def __setattr__(cls, name: str, value: object) -> NoReturn:
        raise UnsafeFileError(f"it asks to change {cls.__name__}")


class _Record(metaclass=_RecordType):
    """What an object of such a class becomes: its attributes, as they were written."""

    attributes: dict[str, Any]

    def __new__(cls, *args: object) -> _Record:
        if args:
            raise UnsafeFileError(f"it asks to make {cls.__name__}(...) from arguments")
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, dict):
            raise UnsafeFileError(f"it gives {type(self).__name__} a state that is no dictionary")
        object.__setattr__(self, "attributes", state)


class _BlankType(type):
    """The type of every name that is read over."""

    def __call__(cls, *args: object, **kwargs: object) -> _Blank:
        return object.__new__(_Blank)

    def __setattr__(cls, name: str, value: object) -> NoReturn:
        raise UnsafeFileError(f"it asks to change {cls.__name__}")


class _Blank(metaclass=_BlankType):
    """What such a name, and a call of it, becomes: nothing, whatever is put into it."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None: ...
    def __setitem__(self, key: object, value: object) -> None: ...
    def append(self, value: object) -> None: ...
    def extend(self, values: object) -> None: ...


class _Answer:
    """A call that is answered; nothing about it can be changed."""

    __slots__ = ("_call",)
    _call: Callable[..., Any]

    def __init__(self, call: Callable[..., Any]) -> None:
        object.__setattr__(self, "_call", call)

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise UnsafeFileError("it asks to change a function")


class _Storage(NamedTuple):
    key: str
    dtype: torch.dtype
    size: int


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


class _StorageType(NamedTuple):
    dtype: torch.dtype


def _describe_tensor(storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> _Tensor:
    numbers = (offset, *size, *stride) if isinstance(size, tuple) and isinstance(stride, tuple) else (None,)
    if not isinstance(storage, _Storage) or not all(type(number) is int and number >= 0 for number in numbers):
        raise UnsafeFileError("it describes a tensor that makes no sense")
    if math.prod(size) > storage.size:
        raise UnsafeFileError("it describes a tensor that is larger than its storage")
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if 0 not in size and last >= storage.size:
        raise UnsafeFileError("it describes a tensor that is larger than its storage")
    return _Tensor(storage, offset, size, stride)


def _describe_parameter(data: Any, *rest: Any) -> _Tensor:
    if not isinstance(data, _Tensor):
        raise UnsafeFileError("it describes a parameter that is no tensor")
    return data


def _reconstruct(kind: Any, *rest: Any) -> Any:
    if not isinstance(kind, _RecordType):
        raise UnsafeFileError("it describes an object without a class")
    return object.__new__(cast("type[_Record]", kind))


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = {
            ("collections", "OrderedDict"): OrderedDict,
            ("builtins", "set"): set,
            ("__builtin__", "set"): set,
            ("copyreg", "_reconstructor"): _Answer(_reconstruct),
            ("copy_reg", "_reconstructor"): _Answer(_reconstruct),
            ("torch._utils", "_rebuild_tensor_v2"): _Answer(_describe_tensor),
            ("torch._utils", "_rebuild_parameter"): _Answer(_describe_parameter),
        }
        if (module, name) in known:
            return known[module, name]
        if module == "torch" and name in _TYPES:
            return _StorageType(_TYPES[name])
        if module in _BLANKS and ((names := _BLANKS[module]) is None or name in names):
            return _Blank
        room = module.partition(".")[0]
        if room in sys.stdlib_module_names or room in ("__builtin__", "copy_reg", "exceptions", "nt"):
            raise UnsafeFileError(f"it names {module}.{name}, which no network is made of")
        return _RecordType(f"{module}.{name}", (_Record,), {})

    def persistent_load(self, pid: Any) -> _Storage:
        match pid:
            case ("storage", _StorageType(dtype), str(key), str(), int(size), *_) if key.isdecimal() and size >= 0:
                return _Storage(key, dtype, size)
        raise UnsafeFileError("it refers to something that is no storage")


def _require_tame(pickled: bytes) -> None:
    """Refuse what would bring the unpickler itself down: tuples nested too deep, places in its memory far apart.

    The pickle is walked through without being run, with the depth of each tuple in the place of the tuple.
    """
    stack: list[int | None] = []  # None is a mark
    memory: dict[int, int | None] = {}
    for count, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
        name = opcode.name
        if name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            place = len(memory) if name == "MEMOIZE" else cast(int, argument)
            if place > count:
                raise UnsafeFileError("it asks for memory that it does not use")
            memory[place] = stack[-1]
            continue
        if name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memory[cast(int, argument)])
            continue
        if name == "DUP":
            stack.append(stack[-1])
            continue
        taken: list[int | None] = []
        if pickletools.markobject in opcode.stack_before:
            while (item := stack.pop()) is not None:
                taken.append(item)
            below = opcode.stack_before.index(pickletools.markobject)
        else:
            below = len(opcode.stack_before)
        taken.extend(stack.pop() for _ in range(below))
        depth = 1 + max((item or 0 for item in taken), default=0) if "TUPLE" in name else 0
        if depth > _DEEPEST:
            raise UnsafeFileError("its tuples are nested too deep")
        stack.extend(None if kind is pickletools.markobject else depth for kind in opcode.stack_after)


def read_module_tensors(path: Path) -> dict[str, Tensor]:
    """Return the parameters and buffers of a pickled module, or of a pickled state dict, by their dotted names.

    Args:
        path: A zip as ``torch.save`` writes it since torch 1.6.

    Raises:
        UnsafeFileError: The file is damaged, or its pickle asks for anything but tensors; nothing has been run then.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            root, members = _members(archive)
            pickled = archive.read(members[f"{root}/data.pkl"])
            _require_tame(pickled)
            tree = _Unpickler(io.BytesIO(pickled)).load()
            storages: dict[str, bytes] = {}
            return {name: _materialise(value, archive, members, root, storages) for name, value in _walk(tree)}
    except UnsafeFileError as error:
        raise UnsafeFileError(f"{path}: refused: {error}. Nothing in it was run.") from None
    except FileNotFoundError:
        raise
    except Exception as error:  # whatever a damaged or hostile pickle can raise
        raise UnsafeFileError(
            f"{path}: not a readable torch file ({type(error).__name__}: {error}); expected the zip that torch.save "
            "writes since torch 1.6, or a .safetensors file."
        ) from None


def _members(archive: zipfile.ZipFile) -> tuple[str, dict[str, zipfile.ZipInfo]]:
    infos = archive.infolist()
    members = {info.filename: info for info in infos}
    roots = [name.removesuffix("/data.pkl") for name in members if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(members) != len(infos) or len(roots) != 1:
        raise UnsafeFileError("it is no archive of torch.save: it must hold one data.pkl, and no name twice")
    if any(info.file_size > _LARGEST or info.compress_type != zipfile.ZIP_STORED for info in infos):
        raise UnsafeFileError("its members are compressed or too large, which torch.save never writes")
    return roots[0], members


def _walk(tree: Any) -> Iterator[tuple[str, _Tensor]]:
    """Yield the tensors of a module's record, or of a dictionary."""
    count = 0
    stack: list[tuple[str, Any, frozenset[int]]] = [("", tree, frozenset())]
    while stack:
        prefix, node, path = stack.pop()
        count += 1
        if id(node) in path or count > _MOST_TENSORS or len(prefix) > 1000:
            raise UnsafeFileError("its tree of modules is endless")
        if isinstance(node, _Tensor):
            yield prefix, node
            continue
        if isinstance(node, _Record):
            state = getattr(node, "attributes", {})
            parts = [state.get(name) for name in ("_modules", "_buffers", "_parameters")]
        elif isinstance(node, dict) and not prefix:
            parts = [node]
        else:
            raise UnsafeFileError(f"`{prefix}` is neither a module nor a tensor")
        for part in parts:
            for name, value in dict.items(part) if isinstance(part, dict) else ():
                if not isinstance(name, str):
                    raise UnsafeFileError(f"`{prefix}` has a part without a name")
                if value is not None:
                    stack.append((f"{prefix}.{name}" if prefix else name, value, path | {id(node)}))


def _materialise(
    tensor: _Tensor,
    archive: zipfile.ZipFile,
    members: dict[str, zipfile.ZipInfo],
    root: str,
    storages: dict[str, bytes],
) -> Tensor:
    key, dtype, size = tensor.storage
    member = members.get(f"{root}/data/{key}")
    if member is None or member.file_size != size * dtype.itemsize:
        raise UnsafeFileError(f"storage {key} is missing or has not the size that it should have")
    if 0 in tensor.size:
        return torch.empty(tensor.size, dtype=dtype)
    if key not in storages:
        storages[key] = archive.read(member)  # checks the CRC
    flat = torch.frombuffer(bytearray(storages[key]), dtype=dtype)
    return flat.as_strided(tensor.size, tensor.stride, tensor.offset).clone()
