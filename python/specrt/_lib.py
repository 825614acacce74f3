"""libspecrt.so by ctypes: the structs of specrt.h, by name and order, and how its functions report."""
from __future__ import annotations

import ctypes as C
import functools
import inspect
import os
import sys
import threading
from numbers import Integral, Real
from types import TracebackType
from typing import Any, Callable

import numpy as np

INTERFACE = "1"  # of the soname; structs below are this interface's
MAX_NODES = 64     # SPECRT_TREE_MAX_NODES

BAD_ORDER = 7      # SPECRT_STATUS_BAD_ORDER

# specrt_dtype, by the names of numpy and torch.
DTYPES = {"float32": 0, "float16": 1, "bfloat16": 30}
ITEM_BYTES = {0: 4, 1: 2, 30: 2}


class SpecrtError(Exception):
    """What specrt refused, in one line: file or field, expected, found, fix. `status` is specrt_status."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class OrderError(SpecrtError):
    """A call that came too early, too late or twice. The line names the call that was expected."""


class CError(C.Structure):
    _fields_ = [("status", C.c_int), ("msg", C.c_char * 512)]


def refusal(status: int, text: bytes) -> SpecrtError:
    """The error to raise for a status and its line."""
    return (OrderError if status == BAD_ORDER else SpecrtError)(text.decode(errors="replace"), status)


class CSection(C.Structure):
    _fields_ = [("tag", C.c_char * 8), ("version", C.c_uint32), ("flags", C.c_uint32), ("offset", C.c_uint64),
                ("stored_bytes", C.c_uint64), ("raw_bytes", C.c_uint64), ("checksum", C.c_uint64),
                ("reserved", C.c_uint64 * 2)]


class CIdent(C.Structure):
    _fields_ = [("tokenizer_sha256", C.c_uint8 * 32), ("n_vocab", C.c_int32), ("n_normal", C.c_int32),
                ("head_rows", C.c_int32), ("head_cols", C.c_int32), ("head_digest", C.c_float * 256),
                ("tokenizer_name", C.c_char * 64), ("head_name", C.c_char * 64)]


class CRanksHeader(C.Structure):
    _fields_ = [("n_vocab", C.c_int32), ("n_ranked", C.c_int32), ("n_forced", C.c_int32),
                ("n_terminators", C.c_int32), ("n_valid", C.c_int32), ("n_default", C.c_int32),
                ("n_tokens", C.c_uint64)]


class CRanks(C.Structure):
    _fields_ = [("header", C.POINTER(CRanksHeader)), ("ids", C.POINTER(C.c_int32)),
                ("counts", C.POINTER(C.c_uint64))]


class CHeadDesc(C.Structure):
    _fields_ = [("rows", C.c_void_p), ("dtype", C.c_int), ("n_rows", C.c_int64), ("n_cols", C.c_int64),
                ("row_stride", C.c_size_t), ("bias", C.c_void_p), ("ids", C.c_void_p),
                ("logit_scale", C.c_float), ("softcap", C.c_float), ("markov", C.c_void_p)]


class CMarkovDesc(C.Structure):
    _fields_ = [("from", CHeadDesc), ("to", CHeadDesc)]


class CSegment(C.Structure):
    _fields_ = [("rows", C.c_void_p), ("row_stride", C.c_size_t), ("ids", C.POINTER(C.c_int32)),
                ("bias", C.c_void_p), ("dtype", C.c_int), ("n_rows", C.c_int32),
                ("masked", C.POINTER(C.c_int32)), ("n_masked", C.c_int32), ("places", C.POINTER(C.c_int32)),
                ("scored_by", C.c_uint64)]


class CShortlist(C.Structure):
    _fields_ = [("compute", C.c_void_p), ("segments", C.POINTER(CSegment)), ("n_segments", C.c_int32),
                ("n_rows", C.c_int32), ("n_cols", C.c_int64), ("head", C.c_void_p)]


class CPolicyDesc(C.Structure):
    _fields_ = [("text", C.c_char_p), ("n_vocab", C.c_int32), ("n_terminators", C.c_int32),
                ("terminators", C.c_void_p), ("ids", C.c_void_p), ("n_ids", C.c_int32), ("embedding", C.c_void_p),
                ("target", C.c_void_p)]


class CPolicyInfo(C.Structure):
    _fields_ = [("text", C.c_char_p), ("bound", C.c_int32), ("hidden_width", C.c_int32), ("shortlist", C.c_void_p),
                ("static_ids", C.POINTER(C.c_int32))]
    _fields_ += [(name, C.c_int32) for name in
                 "n_static is_full learns keeps by_level by_path by_states needs_prompt_logits needs_tree_rows "
                 "needs_draft_input needs_submit n_packed".split()]


class CTreeParams(C.Structure):
    _fields_ = [("num_steps", C.c_int32), ("topk", C.c_int32), ("num_draft_tokens", C.c_int32)]


class CSampling(C.Structure):
    _fields_ = [("temperature", C.c_float), ("top_k", C.c_int32), ("top_p", C.c_float), ("min_p", C.c_float),
                ("seed", C.c_uint64), ("session", C.c_uint64), ("generation", C.c_uint64)]


class CRequest(C.Structure):
    _fields_ = [("begin", C.c_int), ("position", C.c_int64), ("max_tokens", C.c_int64),
                ("sampling", C.POINTER(CSampling))]


class CSessionParams(C.Structure):
    _fields_ = [("tree", CTreeParams), ("sampling", CSampling), ("n_logits", C.c_int32), ("draft", C.c_int),
                ("draft_temperature", C.c_float), ("submit", C.c_void_p), ("submit_user", C.c_void_p),
                ("auto_draft", C.c_void_p), ("stock", C.c_void_p), ("n_block", C.c_int32)]


class CStockParams(C.Structure):
    _fields_ = [("n_rows", C.c_int32), ("costs", C.c_void_p), ("n_costs", C.c_int32)]


class CStockStats(C.Structure):
    _fields_ = [("n_rows", C.c_int32), ("n_held", C.c_int32), ("n_sessions", C.c_int32), ("n_shared", C.c_int32),
                ("n_holds", C.c_int64), ("n_packed", C.c_int64)]


class CTargetRows(C.Structure):
    _fields_ = [("logits", C.c_void_p), ("ids", C.c_void_p), ("k", C.c_int32), ("hidden", C.c_void_p),
                ("d_hidden", C.c_int32)]


class CBeam(C.Structure):
    _fields_ = [("n", C.c_int32), ("tokens", C.POINTER(C.c_int32)), ("parents", C.POINTER(C.c_int32)),
                ("logprobs", C.POINTER(C.c_float))]


class CDraft(C.Structure):
    _fields_ = [("n", C.c_int32), ("tokens", C.POINTER(C.c_int32)), ("parents", C.POINTER(C.c_int32)),
                ("depths", C.POINTER(C.c_int32)), ("masks", C.POINTER(C.c_uint64)),
                ("logprobs", C.POINTER(C.c_float)), ("beam_rows", C.POINTER(C.c_int32)), ("cycle", C.c_int64)]


Selector = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_int32, C.c_int32, C.POINTER(C.c_int32), C.c_int32,
                       C.POINTER(C.c_float))


class CBlock(C.Structure):
    _fields_ = [("n", C.c_int32), ("hidden", C.c_void_p), ("input", C.c_void_p), ("by_position", C.c_int32),
                ("p_min", C.c_float), ("confidence", C.c_void_p), ("confidence_bias", C.c_float),
                ("select", Selector), ("user", C.c_void_p), ("k", C.c_int32)]


class CVerdict(C.Structure):
    _fields_ = [("n", C.c_int32), ("tokens", C.c_int32 * MAX_NODES), ("nodes", C.c_int32 * MAX_NODES),
                ("end", C.c_int), ("cycle", C.c_int64)]


class CStats(C.Structure):
    _fields_ = [(name, C.c_int64) for name in
                "n_cycles n_emitted n_covered n_drafted n_rows n_passes n_bytes n_copied n_events n_lost".split()]
    _fields_ += [("n_by_length", C.c_int64 * (MAX_NODES + 1))]


class CTraceInfo(C.Structure):
    _fields_ = [("tokenizer_sha256", C.c_uint8 * 32), ("n_vocab", C.c_int32), ("d_target", C.c_int32),
                ("d_draft", C.c_int32), ("n_top", C.c_int32), ("n_draft_top", C.c_int32),
                ("n_tree_top", C.c_int32), ("policy", C.c_char_p), ("tree", CTreeParams), ("draft", C.c_int32),
                ("temperature", C.c_float), ("n_ids", C.c_int32), ("n_terminators", C.c_int32),
                ("terminators", C.c_void_p)]


class CTraceRecord(C.Structure):
    _fields_ = [("kind", C.c_int32), ("n", C.c_int32), ("n_nodes", C.c_int32), ("domain", C.c_char * 32)]
    _fields_ += [(name, C.c_void_p) for name in
                 "tokens nodes tree_tokens tree_parents tree_logprobs target_hidden top_ids top_logits "
                 "top_logsumexp draft_hidden draft_ids draft_logits draft_logsumexp tree_top_ids "
                 "prompt_hidden".split()]


STRUCTS = {"specrt_error": CError, "specrt_bundle_section": CSection, "specrt_ident": CIdent,
           "specrt_ranks_header": CRanksHeader, "specrt_ranks": CRanks, "specrt_head_desc": CHeadDesc,
           "specrt_segment": CSegment, "specrt_shortlist": CShortlist, "specrt_policy_desc": CPolicyDesc,
           "specrt_policy_info": CPolicyInfo,
           "specrt_tree_params": CTreeParams, "specrt_sampling": CSampling, "specrt_request": CRequest,
           "specrt_session_params": CSessionParams, "specrt_stock_params": CStockParams,
           "specrt_stock_stats": CStockStats, "specrt_target_rows": CTargetRows, "specrt_beam": CBeam,
           "specrt_markov_desc": CMarkovDesc, "specrt_block": CBlock, "specrt_draft": CDraft, "specrt_verdict": CVerdict, "specrt_session_stats": CStats,
           "specrt_trace_info": CTraceInfo, "specrt_trace_record": CTraceRecord}

# What does not return a status (int), or takes more than pointers and ints of 32 bits.
_RESULTS = {"specrt_bundle_sections": C.POINTER(CSection), "specrt_bundle_data": C.c_void_p,
            "specrt_bundle_ident": C.POINTER(CIdent), "specrt_policy_get_info": C.POINTER(CPolicyInfo),
            "specrt_session_shortlist": C.POINTER(CShortlist), "specrt_session_route": C.POINTER(CShortlist),
            "specrt_status_name": C.c_char_p, "specrt_bundle_close": None, "specrt_head_close": None,
            "specrt_policy_close": None, "specrt_session_close": None,
            "specrt_session_last_error": C.POINTER(CError), "specrt_session_get_stats": None,
            "specrt_stock_close": None, "specrt_stock_get_stats": None}


class Library:
    """libspecrt.so, or libspecrt_cuda.so, which has the same functions and more."""

    def __init__(self, path: str) -> None:
        try:
            self.lib = C.CDLL(path)
        except OSError as error:
            raise SpecrtError(f"{path}: cannot be loaded: {error}; `make lib` builds it, "
                              "SPECRT_LIBRARY names it") from None
        self.path = path
        try:
            for name, result in _RESULTS.items():
                getattr(self.lib, name).restype = result
        except AttributeError as error:
            raise SpecrtError(f"{path}: expected libspecrt.so.{INTERFACE}, found another library ({error})") from None

    def __getattr__(self, name: str) -> Any:
        """A function of the header, without "specrt_": library.bundle_close(handle)."""
        return getattr(self.lib, "specrt_" + name)

    def open(self, name: str, *args: Any) -> C.c_void_p:
        """Calls what takes an error last and gives a handle before it."""
        handle, err = C.c_void_p(), CError()
        if getattr(self, name)(*args, C.byref(handle), C.byref(err)):
            raise refusal(err.status, err.msg)
        return handle

    def call(self, name: str, *args: Any) -> None:
        """Calls what takes an error last."""
        err = CError()
        if getattr(self, name)(*args, C.byref(err)):
            raise refusal(err.status, err.msg)

    def step(self, session: C.c_void_p, name: str, *args: Any) -> None:
        """Calls a function whose errors a session has: session_last_error() has the line."""
        status = getattr(self, name)(*args)
        if status:
            err = self.session_last_error(session).contents
            raise refusal(status, err.msg if err.status == status else self.status_name(status))


def _find() -> str:
    here = os.path.dirname(os.path.abspath(__file__))
    file = {"win32": "libspecrt.dll", "darwin": f"libspecrt.{INTERFACE}.dylib"}.get(
        sys.platform, f"libspecrt.so.{INTERFACE}")
    if os.environ.get("SPECRT_LIBRARY"):
        return os.environ["SPECRT_LIBRARY"]
    for path in os.path.join(here, file), os.path.join(here, "..", "..", "build", file):
        if os.path.exists(path):
            return path
    return file  # where the loader looks


_loaded: Library | None = None


def library(path: str | None = None) -> Library:
    """The library, loaded at first use: SPECRT_LIBRARY, the wheel's, build/ of a checkout, the system's; or this
    one from now on."""
    global _loaded
    if path is not None:
        _loaded = Library(path)
    elif _loaded is None:
        _loaded = Library(_find())
    return _loaded


# --- arguments ---

Int64 = int  # in an annotation: an int of 64 bits; others have 32


def _accepted(annotation: str, names: dict[str, Any]) -> tuple[tuple[type, ...], int]:
    """The types that an annotation names, and the bits of an int; no types: anything goes."""
    parts = [part.strip().split("[")[0] for part in annotation.split("|")]
    if "Any" in parts:
        return (), 0
    types = [eval(part, names) for part in parts]  # our own annotations, in their own module
    types = [{int: Integral, float: Real, None: type(None)}.get(t, t) for t in types]
    return tuple(tuple if issubclass(t, tuple) else t for t in types), 64 if "Int64" in parts else 32


def check_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, raising TypeError or SpecrtError, with the argument's name, where one is not as annotated."""
    signature = inspect.signature(function)
    annotated = {p.name: p.annotation for p in signature.parameters.values()
                 if isinstance(p.annotation, str) and p.name != "self" and p.kind is not p.VAR_KEYWORD}
    if not any("Any" not in text for text in annotated.values()):
        return function
    accepted: dict[str, tuple[tuple[type, ...], int]] = {}

    @functools.wraps(function)
    def call(*args: Any, **more: Any) -> Any:
        if not accepted:
            names = function.__globals__
            accepted.update((name, _accepted(text, names)) for name, text in annotated.items())
        for name, value in signature.bind(*args, **more).arguments.items():
            types, bits = accepted.get(name, ((), 0))
            if types and not isinstance(value, types):
                raise TypeError(f"{function.__qualname__}: {name}: expected {annotated[name]}, "
                                f"found {type(value).__name__}")
            if isinstance(value, Integral) and bits and not -1 << bits - 1 <= int(value) < 1 << bits - 1:
                raise SpecrtError(f"{function.__qualname__}: {name}: expected an integer of {bits} bits, found {value}")
        return function(*args, **more)
    return call


def checked(cls: type) -> type:
    """Class decorator: checks the annotated arguments of all public methods and of __init__."""
    for name, member in list(vars(cls).items()):
        if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, check_arguments(member))
    return cls


# --- handles ---

class Single:
    """An object that cannot be copied or pickled: its copy would free the same memory of the library again."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled; create another one")


class Owner(Single):
    """An object of the library, by its handle. Others borrow it: it closes after them, and not before.

    close() raises where something still borrows it; what is let go in a circle is closed in the right order.
    """

    _close = ""  # the library's function
    _handle: Any = None
    _lenders: tuple[Owner, ...] = ()
    _gone = False

    def _own(self, lib: Library, lenders: tuple[Owner | None, ...], name: str, *args: Any) -> None:
        """Opens the handle: lib.open(name, *args). lenders: what it borrows, held from before the call."""
        self._lib, self._name, self._borrowers = lib, type(self).__name__, []
        self._busy = threading.Lock()
        lenders = tuple(x for x in lenders if x is not None)
        self._hold(lenders)
        try:
            self._handle = lib.open(name, *args)
        except BaseException:
            self._release()
            raise

    def _hold(self, lenders: tuple[Owner, ...]) -> None:
        for lender in lenders:
            lender._borrowers.append(self._name)
        self._lenders = lenders

    def _release(self) -> None:
        lenders, self._lenders = self._lenders, ()
        for lender in lenders:
            lender._borrowers.remove(self._name)
            if lender._gone:
                lender._let_go()

    @property
    def handle(self) -> C.c_void_p:
        """The library's pointer; raises where it is closed."""
        if not self._handle:
            raise SpecrtError(f"{type(self).__name__} is closed; expected an open one")
        return self._handle

    def _exclusive(self) -> Exclusive:
        """For calls that change the object: one at a time."""
        return Exclusive([self])

    def close(self) -> None:
        """Frees it; a second call does nothing. Raises while something made from it is open."""
        if not self._handle:
            return
        if self._borrowers:
            users = ", ".join(sorted(set(self._borrowers)))
            raise SpecrtError(f"{self._name} cannot be closed: expected nothing that uses it, found "
                              f"{len(self._borrowers)} open ({users}); close these first")
        with self._exclusive():
            self._let_go()

    def _let_go(self) -> None:
        if self._handle and not self._borrowers:
            handle = C.c_void_p(self._handle.value)
            self._handle.value = None  # in calls that another thread prepares, too
            getattr(self._lib, self._close)(handle)
            self._release()

    def __del__(self) -> None:
        self._gone = True
        if self._handle:
            self._let_go()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


class Exclusive:
    """Holds objects for one call: a second thread gets an error, and no crash."""

    def __init__(self, owners: list[Owner]) -> None:
        self.locks = {id(owner._busy): owner for owner in owners}.values()
        self.held: list[Any] = []

    def __enter__(self) -> None:
        for owner in self.locks:
            if not owner._busy.acquire(blocking=False):
                self.__exit__()
                raise SpecrtError(f"{type(owner).__name__} is in use by another thread; expected one thread at a time")
            self.held.append(owner._busy)

    def __exit__(self, *_: Any) -> None:
        while self.held:
            self.held.pop().release()


# --- memory of others, as it is ---

def c_text(text: str | bytes | os.PathLike[str], name: str) -> bytes:
    """Text or a path for C, which would end at a NUL inside."""
    data = os.fsencode(text)
    if b"\0" in data:
        raise ValueError(f"{name}: expected text without NUL, found NUL at byte {data.index(0)}")
    return data



class Memory:
    """Where an array lies: address, dtype by name, shape, bytes between rows. Holds the array."""

    def __init__(self, array: Any, name: str) -> None:
        self.array = array
        if hasattr(array, "data_ptr"):  # torch, whose bfloat16 numpy does not know
            if array.device.type != "cpu":
                raise SpecrtError(f"{name}: expected memory of the CPU, found a tensor on {array.device}")
            self.address, self.shape = array.data_ptr(), tuple(array.shape)
            negated = "negated " if array.is_neg() else ""  # memory that torch reads with the other sign
            self.dtype = negated + str(array.dtype).split(".")[-1]
            strides = tuple(s * array.element_size() for s in array.stride())
            item = array.element_size()
        else:
            if not isinstance(array, np.ndarray):
                array = np.from_dlpack(array) if hasattr(array, "__dlpack__") else np.asarray(array)
                if array.base is None:  # a copy, which nobody would keep
                    raise TypeError(f"{name}: expected an array of numpy, PyTorch or DLPack, found "
                                    f"{type(self.array).__name__}")
                self.array = array
            if array.dtype.kind in "OSUV":
                raise TypeError(f"{name}: expected an array of numbers, found {array.dtype.name}")
            self.address, self.shape = array.ctypes.data, array.shape
            self.dtype = array.dtype.name if array.dtype.isnative else array.dtype.str  # ">f4" of other bytes
            strides, item = array.strides, array.itemsize
        if any(at % item for at in (self.address, *strides)):
            raise SpecrtError(f"{name}: expected memory whose addresses are multiples of {item}, found others; copy it")
        self.row_stride = strides[0] if len(strides) > 1 else item
        expected = item  # but for the rows all must lie side by side
        self.packed = True
        for size, stride in list(zip(self.shape, strides))[:0:-1]:
            self.packed = self.packed and (size == 1 or stride == expected)
            expected *= size
        self.whole = self.packed and (len(self.shape) < 1 or self.shape[0] <= 1 or strides[0] == expected)


def pointer(array: Any, dtype: str, shape: tuple[int | None, ...], name: str) -> C.c_void_p | None:
    """The address of an array that has this dtype and shape (None: any) in one piece; None for None."""
    if array is None:
        return None
    m = Memory(array, name)
    fits = len(m.shape) == len(shape) and all(e in (None, f) for e, f in zip(shape, m.shape))
    if m.dtype != dtype or not fits or not m.whole:
        expected = "[" + ", ".join("n" if e is None else str(e) for e in shape) + "]"
        raise SpecrtError(f"{name}: expected {dtype} {expected} in one piece, found {m.dtype} {list(m.shape)}"
                          f"{'' if m.whole else ' with gaps'}")
    address = C.c_void_p(m.address)
    address.array = m.array  # type: ignore[attr-defined]  # held as long as its address
    return address


def size_of(array: Any, axis: int, name: str) -> int:
    """The rows (axis 0) or columns (1) of what must be a matrix; 0 for None."""
    if array is None:
        return 0
    shape = Memory(array, name).shape
    if len(shape) != 2:
        raise SpecrtError(f"{name}: expected a matrix [n, columns], found {list(shape)}")
    return shape[axis]


def ints(values: Any, name: str, least: int = 0) -> np.ndarray:
    """Token ids or other numbers of at least `least` as int32 [n]; a copy only where they are not that already."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected token ids (integers), found {type(values).__name__} of {array.dtype.name}")
    if array.ndim > 1:
        raise SpecrtError(f"{name}: expected token ids [n], found {list(array.shape)}")
    array = array.reshape(-1)
    wrong = np.flatnonzero((array < least) | (array >= 1 << 31))
    if len(wrong):
        raise SpecrtError(f"{name}: expected numbers in [{least}, {1 << 31}), found {array[wrong[0]]} at {wrong[0]}")
    return np.require(array, np.int32, ["C", "A"])


def numbers(struct: type[C.Structure], values: tuple[Any, ...], name: str) -> C.Structure:
    """A struct of numbers, each of which its field can hold."""
    out = struct()
    for (field, kind), value in zip(struct._fields_, values):
        real, bits = kind is C.c_float, 8 * C.sizeof(kind)
        if not isinstance(value, Real if real else Integral):
            raise TypeError(f"{name}: {field}: expected {'a number' if real else 'an integer'}, found "
                            f"{type(value).__name__}")
        setattr(out, field, value)
        if not real and getattr(out, field) != value:
            raise SpecrtError(f"{name}: {field}: expected an integer of {bits} bits, found {value}")
    return out


def array_of(address: Any, n: int, dtype: Any) -> np.ndarray:
    """Memory of the library as it is, read-only; valid as long as its owner."""
    if n == 0:
        return np.empty(0, dtype)
    raw = (C.c_char * (n * np.dtype(dtype).itemsize)).from_address(C.cast(address, C.c_void_p).value or 0)
    view = np.frombuffer(raw, dtype)
    view.flags.writeable = False
    return view
