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


STRUCTS: dict[str, Any] = {}  # of specrt.h, by name
_TYPES = {"int": C.c_int, "int32_t": C.c_int32, "int64_t": C.c_int64, "uint8_t": C.c_uint8, "uint32_t": C.c_uint32,
          "uint64_t": C.c_uint64, "float": C.c_float, "size_t": C.c_size_t, "char": C.c_char, "void*": C.c_void_p,
          "char*": C.c_char_p}


def _type(word: str) -> Any:
    known = _TYPES.get(word) or STRUCTS.get(word)
    if known:
        return known
    if word.endswith("*"):
        return C.POINTER(_type(word[:-1]))
    item, n = word[:-1].split("[")
    return _type(item) * int(n)


def _struct(name: str, members: str) -> Any:
    """A struct of specrt.h. Members are "TYPE NAME...; TYPE NAME...", where a TYPE has its stars and brackets."""
    STRUCTS[name] = type(name, (C.Structure,), {"_fields_": [
        (member, _type(kind)) for kind, *names in map(str.split, members.split(";")) for member in names]})
    return STRUCTS[name]


CError = _struct("specrt_error", "int status; char[512] msg")


def refusal(status: int, text: bytes) -> SpecrtError:
    """The error to raise for a status and its line."""
    return (OrderError if status == BAD_ORDER else SpecrtError)(text.decode(errors="replace"), status)


CSection = _struct("specrt_bundle_section", """
    char[8] tag; uint32_t version flags; uint64_t offset stored_bytes raw_bytes checksum;
    uint64_t[2] reserved
""")

CIdent = _struct("specrt_ident", """
    uint8_t[32] tokenizer_sha256; int32_t n_vocab n_normal head_rows head_cols; float[256] head_digest;
    char[64] tokenizer_name head_name
""")

CRanksHeader = _struct("specrt_ranks_header", """
    int32_t n_vocab n_ranked n_forced n_terminators n_valid n_default; uint64_t n_tokens
""")

CRanks = _struct("specrt_ranks", "specrt_ranks_header* header; int32_t* ids; uint64_t* counts")

CHeadDesc = _struct("specrt_head_desc", """
    void* rows; int dtype; int64_t n_rows n_cols; size_t row_stride; void* bias ids;
    float logit_scale softcap; void* markov
""")

CMarkovDesc = _struct("specrt_markov_desc", "specrt_head_desc from to")

CSegment = _struct("specrt_segment", """
    void* rows; size_t row_stride; int32_t* ids; void* bias; int dtype; int32_t n_rows; int32_t* masked;
    int32_t n_masked; int32_t* places; uint64_t scored_by
""")

CShortlist = _struct("specrt_shortlist", """
    void* compute; specrt_segment* segments; int32_t n_segments n_rows; int64_t n_cols; void* head
""")

CPolicyDesc = _struct("specrt_policy_desc", """
    char* text; int32_t n_vocab n_terminators; void* terminators ids; int32_t n_ids; void* embedding target
""")

CPolicyInfo = _struct("specrt_policy_info", """
    char* text; int32_t bound hidden_width; void* shortlist; int32_t* static_ids;
    int32_t n_static is_full learns keeps by_level by_path by_states needs_prompt_logits needs_tree_rows
    needs_draft_input needs_submit n_packed
""")

CTreeParams = _struct("specrt_tree_params", "int32_t num_steps topk num_draft_tokens")

CSampling = _struct("specrt_sampling", """
    float temperature; int32_t top_k; float top_p min_p; uint64_t seed session generation
""")

CRequest = _struct("specrt_request", "int begin; int64_t position max_tokens; specrt_sampling* sampling")

CSessionParams = _struct("specrt_session_params", """
    specrt_tree_params tree; specrt_sampling sampling; int32_t n_logits; int draft; float draft_temperature;
    void* submit submit_user auto_draft stock; int32_t n_block
""")

CStockParams = _struct("specrt_stock_params", "int32_t n_rows; void* costs; int32_t n_costs")

CStockStats = _struct("specrt_stock_stats", """
    int32_t n_rows n_held n_sessions n_shared; int64_t n_holds n_packed
""")

CTargetRows = _struct("specrt_target_rows", "void* logits ids; int32_t k; void* hidden; int32_t d_hidden")

CBeam = _struct("specrt_beam", "int32_t n; int32_t* tokens parents; float* logprobs")

CDraft = _struct("specrt_draft", """
    int32_t n; int32_t* tokens parents depths; uint64_t* masks; float* logprobs; int32_t* beam_rows;
    int64_t cycle
""")

Selector = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_int32, C.c_int32, C.POINTER(C.c_int32), C.c_int32,
                       C.POINTER(C.c_float))
_TYPES["Selector"] = Selector

CBlock = _struct("specrt_block", """
    int32_t n; void* hidden input; int32_t by_position; float p_min; void* confidence;
    float confidence_bias; Selector select; void* user; int32_t k
""")

CVerdict = _struct("specrt_verdict", f"int32_t n; int32_t[{MAX_NODES}] tokens nodes; int end; int64_t cycle")

CStats = _struct("specrt_session_stats", f"""
    int64_t n_cycles n_emitted n_covered n_drafted n_rows n_passes n_bytes n_copied n_events n_lost;
    int64_t[{MAX_NODES + 1}] n_by_length
""")

CTraceInfo = _struct("specrt_trace_info", """
    uint8_t[32] tokenizer_sha256; int32_t n_vocab d_target d_draft n_top n_draft_top n_tree_top;
    char* policy; specrt_tree_params tree; int32_t draft; float temperature; int32_t n_ids n_terminators;
    void* terminators
""")

CTraceRecord = _struct("specrt_trace_record", """
    int32_t kind n n_nodes; char[32] domain;
    void* tokens nodes tree_tokens tree_parents tree_logprobs target_hidden top_ids top_logits top_logsumexp
    draft_hidden draft_ids draft_logits draft_logsumexp tree_top_ids prompt_hidden
""")

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
