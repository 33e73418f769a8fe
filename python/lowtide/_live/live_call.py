"""Calls of a live step, one at a time: Python runs for real, its tensor work is deferred, program after program."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch import eager_transforms, vmap
from torch.optim import optimizer as optimizers
from torch.overrides import TorchFunctionMode, _pop_mode_temporarily

from .._base.interrupts import signals_held
from .._base.structure import instances_in
from .._base.torch_minors import of_class
from .._base.wrapped import Wrapped
from .._capture.autocast_casts import refuse_autocast_by_hand, region_around
from .._capture.refused_modules import refuse_wrapper
from .._capture.tape import drop_tracebacks
from .._guards.guards import SAVED_TENSOR_HOOKS, must_stay_eager
from .._step.fallback import reason_of
from ..errors import CaptureError
from .atoms import Atoms, OptimizerCall, is_atom, is_checkpoint, is_step, sees_python
from .deferring import UNKNOWN, Program
from .log import DepartedError
from .own_rules import result_is_used
from .random_state import reads_noticed
from .stand_in import StandIn, StandInUsedError, operators_deferred
from .watched_state import WatchedGroups, WatchedState

if TYPE_CHECKING:
    from .live_step import LiveStep

_T = torch.Tensor
_NEEDS_TENSORS = (
    (eager_transforms, "grad_increment_nesting", "a function transform"),
    (eager_transforms, "jvp_increment_nesting", "a function transform"),
    (vmap, "vmap_increment_nesting", "a function transform"),
)
_BEFORE_STEPS: Any = optimizers._global_optimizer_pre_hooks
_AFTER_STEPS: Any = optimizers._global_optimizer_post_hooks
_PROFILER = "torch._ops.profiler"
_FACTS = frozenset(
    {"shape", "dtype", "device", "layout", "ndim", "is_cpu", "is_cuda", "is_sparse", "is_meta", "itemsize", "nbytes",
     "is_quantized", "is_nested", "is_mkldnn", "is_xpu", "is_mps", "is_sparse_csr", "names", "name"}
)  # fmt: skip
_ASKS_LAYOUT = frozenset({_T.stride, _T.is_contiguous})
_ASKS_FACTS = frozenset(
    {_T.size, _T.dim, _T.numel, _T.stride, _T.__len__, _T.is_floating_point, _T.element_size, _T.ndimension,
     _T.is_complex, _T.nelement, torch.numel, torch.is_floating_point, torch.is_complex, _T.is_contiguous, _T.__hash__,
     _T.is_signed, _T.get_device, _T.is_conj, _T.is_neg, torch.is_conj, torch.is_neg, _T.is_inference,
     torch.is_inference, _T.storage_offset, _T.is_same_size}
)  # fmt: skip
_ASKS_VALUES = frozenset(
    {_T.item, _T.__bool__, _T.__float__, _T.__int__, _T.__index__, _T.__complex__, _T.tolist, _T.numpy, _T.__array__,
     _T.__repr__, _T.__format__, _T.is_nonzero, torch.is_nonzero, torch.equal, torch.allclose, _T.equal, _T.allclose,
     _T.__contains__, _T.__dlpack__, _T.data_ptr, _T.untyped_storage, _T.storage, _T.__deepcopy__, _T.__reduce_ex__,
     _T.share_memory_, _T.__cuda_array_interface__.__get__}
)  # fmt: skip
_EXPOSES = frozenset({_T.numpy, _T.__array__, _T.__dlpack__, _T.untyped_storage, _T.storage})
_ASKS_NUMBERS = frozenset(
    {_T.item, _T.__bool__, _T.__float__, _T.__int__, _T.__index__, _T.__complex__, _T.tolist, _T.is_nonzero,
     torch.is_nonzero}
)  # fmt: skip
_SWITCHES = frozenset(
    {"_set_grad_enabled", "set_autocast_enabled", "set_autocast_dtype", "set_autocast_cache_enabled",
     "clear_autocast_cache", "autocast_increment_nesting", "autocast_decrement_nesting", "set_autocast_cpu_enabled",
     "set_autocast_cpu_dtype", "set_autocast_gpu_dtype", "is_autocast_enabled", "get_autocast_dtype",
     "set_default_dtype", "set_default_device"}
)  # fmt: skip


class LiveCall(TorchFunctionMode):
    """Every tensor call that live Python makes comes by here."""

    is_lowtides = True  # for those who look for modes of others

    def __init__(self, step: LiveStep) -> None:
        super().__init__()
        self._step = step
        self._atoms = Atoms(
            step.optimizers,
            self._defer,
            self._depart_before,
            self._before_module_runs,
            lambda: not self._busy and not self._eager,
        )
        self._noticed = self._what_is_noticed()
        self._hooks = ((_BEFORE_STEPS, self._before_step), (_AFTER_STEPS, self._after_step))
        self._begin()
        self._busy = 1  # between calls: whoever has kept a function of ours calls what is behind it

    def _begin(self) -> None:
        self._thread = threading.get_ident()
        self._program: Program | None = None
        self._busy = 0
        self._eager = ""  # why nothing is deferred any more in this call
        self._is_due = False  # all optimizers have stepped: only zero_grad() and work on results are deferred still
        self._shown: list[tuple[Any, str, Any]] = []  # of optimizers whose step is deferred: their own state and groups
        self._region = 0  # the number of the autocast region that live Python is in; 0: none, or one around the call
        self._regions = 0  # so many have begun; one whose casts are cleared begins again
        self._exposed: list[torch.Tensor] = []  # those whose memory live Python can read past PyTorch
        self._own = self._step.own.tensors
        self._root: Any = None

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the function."""
        self._begin()
        self._eager = must_stay_eager()
        self._root = sys._getframe()
        try:
            self._set_hooks(put_in=True)
            with self._atoms.opened(self._step.own.modules), self._surroundings_noticed():
                try:
                    with self, signals_held.users_code():
                        result = function(*args, **kwargs)
                except BaseException as error:
                    if isinstance(error, KeyboardInterrupt) or signals_held.raised(error):
                        with self._at_work():
                            self._drop()  # what was deferred has not happened
                    else:  # any other, such as that of sys.exit() or of a cancelled task
                        self._end_early()
                    raise
                self._end()
        finally:
            self._set_hooks(put_in=False)
            self._root = self._program = None
            self._busy = 1
            self._exposed.clear()
        return result

    @property
    def left(self) -> str:
        """Why part of the call ran eagerly, if it did."""
        return self._eager

    # -- what live Python calls ----------------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._busy:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return self._attribute(func, func.__self__.__name__, args)
        if func in _ASKS_FACTS or getattr(func, "__module__", "") == _PROFILER:
            if func in _ASKS_LAYOUT and type(args[0]) is StandIn:
                self._confirm_layout(args[0])
            return func(*args, **kwargs)
        if name in _SWITCHES:
            return func(*args, **kwargs)
        if func in _ASKS_VALUES:
            answer = self._ask_value(func, args, kwargs)
            self._note_exposed(func, args)
            return answer
        if self._program is None and not self._touches(args, kwargs):
            return func(*args, **kwargs)
        if name == "__set__" and self._program is None and func.__self__.__name__ == "grad" and args[1] is None:
            return func(*args, **kwargs)
        if name == "__set__" and func.__self__.__name__ == "grad" and self._is_foreign(args[0]):
            if type(args[1]) is StandIn or (self._program is not None and self._program.gives_gradient(args[0])):
                self._depart_for("live Python sets the gradient of a tensor that is not the model's")
            return func(*args, **kwargs)
        if name == "detach" and self._is_foreign(args[0]) and not args[0].is_leaf:
            return func(*args, **kwargs)  # a view, of a result that has been computed
        if name == "retain_grad" and type(args[0]) is StandIn:
            self._depart_for("live Python keeps the gradient of a tensor that is not computed yet")
            return func(*args, **kwargs)
        if func is _T.__iter__:
            return iter(args[0].unbind(0))
        if name == "detach_" and self._is_foreign(args[0]):
            self._before_it_is_used_otherwise(args[0])
            return func(*args, **kwargs)
        if name == "requires_grad_" or (name == "__set__" and func.__self__.__name__ == "requires_grad"):
            if type(args[0]) is StandIn:
                return self._call(_T.requires_grad_, args, kwargs)
            self._before_it_is_used_otherwise(args[0])
            return func(*args, **kwargs)
        if name == "__set__" and func.__self__.__name__ == "data":
            self._depart_for("live Python gives a tensor new memory (`.data = ...`)")
            return func(*args, **kwargs)
        return self._call(func, args, kwargs)

    def _before_it_is_used_otherwise(self, tensor: torch.Tensor) -> None:
        """What has been deferred has used a tensor that is not the model's as it is now."""
        if self._program is not None and self._program.has_used(tensor):
            self._depart_for("live Python sets whether a tensor that the step has used requires a gradient")

    def _confirm_layout(self, tensor: StandIn) -> None:
        """Live Python looks at strides, which PyTorch may predict wrongly."""
        if self._program is not None:
            with self._at_work():
                try:
                    self._program.confirm_layout(tensor)
                except BaseException as error:
                    self._fail(error)

    def _defer(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An atom; modes that the user has put on top of this one see nothing of it."""
        if self._busy:
            return function(*args, **kwargs)
        if self._program is None and type(function) is OptimizerCall and function.name == "zero_grad":
            with self._off_the_stack():
                return self._at_once(function, args, kwargs)
        if torch._C._len_torch_function_stack() == 0:
            return function(*args, **kwargs)
        if self._program is None and not self._begins(function, args, kwargs):
            return function(*args, **kwargs)
        with self._off_the_stack():
            return self._call(function, args, kwargs)

    def _operator(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator that is called by itself, with stand-ins."""
        if self._busy or self._program is None:
            raise StandInUsedError(f"{function} needs a tensor that the planned step has not computed")
        with self._off_the_stack():
            return self._call(function, args, kwargs)

    def _off_the_stack(self) -> Any:
        """While open, this mode is not asked. One that the user has put on top of it stays."""
        depth = torch._C._len_torch_function_stack()
        is_top = depth > 0 and torch._C._get_function_stack_at(depth - 1) is self
        return _pop_mode_temporarily() if is_top else nullcontext()

    def _is_own(self, tensor: Any) -> bool:
        return id(tensor) in self._own

    def _is_foreign(self, tensor: Any) -> bool:
        """Whether a tensor is there, and not the model's."""
        return type(tensor) is not StandIn and not self._is_own(tensor)

    def _touches(self, args: Any, kwargs: Any) -> bool:
        """Whether a call begins what is planned: with a tensor of the model, or with any, if it has none."""
        return any(not self._own or id(tensor) in self._own for tensor in instances_in((args, kwargs), torch.Tensor))

    def _is_of_results(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call works with results of the program alone, such as `loss.detach()`."""
        if is_atom(function) or is_step(function) or is_checkpoint(function):
            return False
        tensors = list(instances_in((args, kwargs), torch.Tensor))
        return bool(tensors) and all(type(tensor) is StandIn for tensor in tensors)

    def _begins(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a program begins with this call."""
        return is_atom(function) or is_step(function) or is_checkpoint(function) or self._touches(args, kwargs)

    def _call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answer = self._follow(function, args, kwargs)
        if answer is not UNKNOWN:
            return answer
        if self._is_due and not _drops_gradients(function, args) and not self._is_of_results(function, args, kwargs):
            self._launch_if_possible()
        if self._eager or (self._program is None and not self._begins(function, args, kwargs)):
            return self._at_once(function, args, kwargs)
        deferred = False
        with self._at_work():
            try:
                if is_atom(function):
                    self._refuse_surroundings()
                if is_step(function) and function.optimizer in self._step.own_rules:
                    self._refuse_use_of(function.optimizer)
                if is_step(function) and self._program is not None and self._program.has_stepped(function.optimizer):
                    self._launch()
                if self._program is None:
                    refuse_autocast_by_hand()
                    self._step.programs += 1
                    self._step.find_own()
                    self._own = self._step.own.tensors
                    self._program = Program(self._step)
                answer = self._program.call(function, args, kwargs, self._region)
                deferred = True
                self._launch_what_is_exposed()
                self._is_due = self._is_due or (is_step(function) and self._launches_now())
                if is_step(function) and self._step.own_rules.is_made_at_once(function):
                    self._launch_at_once(function.optimizer)
                if self._program is not None and self._is_due and region_around():
                    self._launch()  # casts that the region keeps are made before its next call
                signals_held.look()
            except BaseException as error:
                self._fail(error)  # with this call, if it was deferred
        return answer if deferred else self._at_once(function, args, kwargs)

    def _follow(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What most calls are: plain tensor work that the log has next. Nothing is put aside for it."""
        program = self._program
        if program is None or self._eager or self._is_due or type(function) is OptimizerCall or is_checkpoint(function):
            return UNKNOWN
        if sees_python(function) or self._exposed:
            return UNKNOWN
        self._busy += 1
        try:
            answer = program.follow(function, args, kwargs)
        except Exception:  # which comes again
            return UNKNOWN
        finally:
            self._busy -= 1
        if answer is not UNKNOWN:
            signals_held.look()
        return answer

    def _launches_now(self) -> bool:
        program = self._program
        every = self._step.launches_at_each_step
        return every or (program is not None and all(map(program.has_stepped, self._step.optimizers)))

    def _refuse_surroundings(self) -> None:
        around = must_stay_eager()
        in_checkpoint = self._program is not None and self._program.in_checkpoint
        if around and not (in_checkpoint and around == SAVED_TENSOR_HOOKS):
            raise CaptureError(f"{around} must see the model itself at work")

    @staticmethod
    def _refuse_use_of(optimizer: torch.optim.Optimizer) -> None:
        if result_is_used(sys._getframe()):
            name = type(optimizer).__name__
            raise CaptureError(f"the step uses what {name}.step() returns, which is known only after the step")

    def _at_once(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls inside are nobody's business."""
        if is_atom(function) or type(function) is OptimizerCall:
            with self._at_work():
                return function(*args, **kwargs)
        return function(*args, **kwargs)

    def _attribute(self, func: Any, name: str, args: Any) -> Any:
        one = args[0]
        program = self._program
        if type(one) is not StandIn:
            if name == "grad" and program is not None and (program.is_parameter(one) or program.gives_gradient(one)):
                return program.gradient_of(one)
            if program is None or name in _FACTS or name in ("requires_grad", "is_leaf", "grad_fn"):
                return func(*args)
            if name == "grad" or (name == "data" and self._is_foreign(one) and not one.is_leaf):
                return func(*args)  # no program changes which gradient it is
            return self._call(func, args, {})
        if name in _FACTS:
            return func(*args)
        if name == "requires_grad":
            return one.form.requires_grad
        if name == "is_leaf":
            return one.form.is_leaf
        if name in ("grad", "grad_fn") and not one.form.requires_grad:
            return None
        if name in ("grad", "grad_fn", "_version", "_base", "_backward_hooks", "output_nr", "retains_grad"):
            self._depart_for(f"live Python asks for `{name}` of a tensor that is not computed yet")
            return func(*args)
        return self._call(func, args, {})

    def _ask_value(self, func: Any, args: Any, kwargs: Any) -> Any:
        program = self._program
        if program is not None and self._is_any_pending(program, args, kwargs):
            with self._at_work():
                try:
                    if self._launch():
                        return func(*args, **kwargs)
                    if not self._is_peek(func, args, kwargs):
                        raise DepartedError(f"{getattr(func, '__name__', func)} asks for a tensor before backward()")
                    value = program.value_of(args[0], self._region)
                except BaseException as error:
                    self._fail(error)
                else:
                    return func(value, *args[1:])
        return func(*args, **kwargs)

    def _is_any_pending(self, program: Program, args: Any, kwargs: Any) -> bool:
        tensors = list(instances_in((args, kwargs), torch.Tensor))
        if any(type(one) is StandIn for one in tensors):
            return True
        with self._at_work():  # it looks at the states of optimizers
            return any(map(program.is_pending, tensors))

    @staticmethod
    def _is_peek(func: Any, args: Any, kwargs: Any) -> bool:
        """Whether a value is all that is asked for."""
        single = bool(args) and type(args[0]) is StandIn and not kwargs and all(type(a) is str for a in args[1:])
        return single and (func in _ASKS_NUMBERS or (func is _T.__format__ and args[0].dim() == 0))

    def _at_work(self) -> _AtWork:
        """While open, what is called is none of live Python's calls."""
        return _AtWork(self)

    def put_aside(self) -> None:
        """Optimizers have their own methods and states, and no hooks of ours."""
        self._busy += 1
        if self._busy == 1:
            self._atoms.put(in_place=False)
            for optimizer, name, own in self._shown:
                setattr(optimizer, name, own)
            self._shown.clear()
            self._set_hooks(put_in=False)

    def take_up(self) -> None:
        """The reverse; states are watched where a step is deferred."""
        if self._busy == 1:
            self._set_hooks(put_in=True)
            for optimizer in self._step.optimizers:
                if self._program is not None and self._program.has_stepped(optimizer):
                    self._watch(optimizer, "state", WatchedState)
                    if optimizer in self._step.own_rules:
                        self._watch(optimizer, "param_groups", WatchedGroups)
            self._atoms.put(in_place=True)
        self._busy -= 1

    def _watch(self, optimizer: torch.optim.Optimizer, name: str, by: Callable[..., Any]) -> None:
        self._shown.append((optimizer, name, getattr(optimizer, name)))
        setattr(optimizer, name, by(optimizer, self._before_state_is_used))

    def _set_hooks(self, *, put_in: bool) -> None:
        """Steps of optimizers that `compile` was not given: they come between programs, and run as they are."""
        for hooks, hook in self._hooks:
            if put_in:
                hooks[id(self)] = hook
            else:
                hooks.pop(id(self), None)

    def _before_step(self, *_: Any) -> None:
        if not self._is_this_thread():
            return
        if not self._busy and not self._launch_if_possible():
            self._depart_for("an optimizer that was not passed to lowtide.compile steps before a backward pass")
        self._busy += 1

    def _after_step(self, *_: Any) -> None:
        if self._is_this_thread():
            self._busy -= 1

    # -- the end of a program ------------------------------------------------------------------------------------------

    def _launch(self, *, at_end: bool = False) -> bool:
        assert self._program is not None
        if not self._program.launch(None if at_end else self._root):
            return False
        self._program = None
        self._is_due = False
        return True

    def _note_exposed(self, function: Any, args: tuple[Any, ...]) -> None:
        """Live Python has memory of a tensor, which shows what is written there, and when."""
        if function in _EXPOSES and not self._eager:
            with self._at_work():
                self._exposed.append(args[0].detach())

    def _launch_what_is_exposed(self) -> None:
        """Nothing that live Python can read past PyTorch stays unwritten."""
        program = self._program
        if program is not None and any(map(program.is_pending, self._exposed)) and not self._launch():
            raise DepartedError("live Python can read memory that is not written yet, as an array or a storage")

    def _launch_at_once(self, optimizer: torch.optim.Optimizer) -> None:
        """Python could see that its step is not made yet."""
        if self._program is not None and not self._launch():
            raise DepartedError(f"{type(optimizer).__name__}.step() comes before a backward pass")

    def _before_state_is_used(self) -> None:
        if not self._busy and not self._launch_if_possible():
            self._depart_for("live Python looks at the state or the groups of an optimizer before a backward pass")

    def _launch_if_possible(self) -> bool:
        """Whether nothing is deferred any more."""
        with self._at_work():
            try:
                return self._program is None or self._launch()
            except BaseException as error:
                self._fail(error)
        return True

    def _end_early(self) -> None:
        """An exception leaves the function."""
        if self._is_due:
            self._launch_if_possible()
        self._materialise()

    def _end(self) -> None:
        if self._program is None:
            return
        with self._at_work():
            try:
                if not self._launch(at_end=True):
                    raise CaptureError(
                        "the function leaves a tensor that still needs its backward pass; call it under "
                        "torch.no_grad(), or let the function call backward()"
                    )
            except BaseException as error:
                self._fail(error)

    @contextmanager
    def _surroundings_noticed(self) -> Iterator[None]:
        """While open, what would see tensors or states that are not there yet is told of first."""
        # What has been compiled runs as it was written.
        is_loaded = "torch._dynamo.eval_frame" in sys.modules
        compiled = torch.compiler.set_stance("force_eager") if is_loaded else nullcontext()
        with (
            reads_noticed(self._before_random_state_is_read),
            operators_deferred(self._operator, self._depart_before),
            self._noticed,
            compiled,
        ):
            yield

    def _what_is_noticed(self) -> Wrapped:
        """What begins work that needs tensors, and the autocast regions that live Python enters and leaves."""
        return Wrapped(
            *[(owner, name, partial(self._notice, what)) for owner, name, what in _NEEDS_TENSORS],
            (torch.autograd.Function, "apply", self._notice_function),
            (torch.nn.Parameter, "__new__", lambda own: staticmethod(self._notice("a new parameter", own))),
            (torch, "autocast_increment_nesting", self._count_entered),
            (torch, "autocast_decrement_nesting", self._count_left),
            (torch, "clear_autocast_cache", self._count_cleared),
        )

    # Autocast regions get numbers: casts are kept until one ends.

    def _count_entered(self, own: Callable[[], int]) -> Callable[[], int]:
        def enter() -> int:
            depth = own()
            if depth == 1 and self._is_this_thread() and not self._busy:
                self._begin_region()
            return depth

        return enter

    def _count_left(self, own: Callable[[], int]) -> Callable[[], int]:
        def leave() -> int:
            depth = own()
            if depth == 0 and self._is_this_thread() and not self._busy:
                self._region = 0
            return depth

        return leave

    def _count_cleared(self, own: Callable[[], None]) -> Callable[[], None]:
        def clear() -> None:
            own()
            if self._is_this_thread() and not self._busy:
                self._begin_region()

        return clear

    def _begin_region(self) -> None:
        self._region = self._regions = self._regions + 1

    def _notice(self, what: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*args: Any, **kwargs: Any) -> Any:
            if self._is_this_thread():
                self._depart_before(what)
            return own(*args, **kwargs)

        return begin

    def _notice_function(self, own: Any) -> Any:
        return classmethod(self._notice("an autograd function of the step's own", of_class(own)))

    def _is_this_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def _before_module_runs(self, module: torch.nn.Module) -> None:
        """One that is none of the model's."""
        if self._busy or self._eager:
            return
        try:
            refuse_wrapper(module, "a module that the step calls")
        except CaptureError as error:
            with self._at_work():
                self._depart(error)

    def _before_random_state_is_read(self) -> None:
        if not self._busy and self._program is not None and self._program.draws.any:
            self._depart_for("live Python reads the random state while draws are deferred")

    def _depart_before(self, what: str) -> None:
        """Something begins that must see real tensors."""
        if not self._busy and self._program is not None:
            self._depart_for(f"{what} must see its tensors")

    def _depart_for(self, reason: str) -> None:
        with self._at_work():
            self._depart(DepartedError(reason))

    def _fail(self, error: BaseException) -> None:
        """Departs; or, after Ctrl-C in work of ours, what was deferred has not happened."""
        if isinstance(error, Exception):
            self._depart(error)
            return
        drop_tracebacks(error)
        self._drop()
        raise error

    def _depart(self, error: Exception) -> None:
        """What was deferred is done eagerly, and the rest of the call as well; or the error is raised."""
        reason = reason_of(error)
        drop_tracebacks(error)  # whose frames hold fake tensors
        refusal = self._step.refusal_of(error, reason)
        if refusal is not None:
            self._eager = str(refusal)
            self._drop()
            raise refusal from refusal.__cause__
        self._eager = reason
        self._materialise()
        self._step.note_departure(error, reason)

    def _drop(self) -> None:
        program, self._program = self._program, None
        self._is_due = False
        if program is not None:
            program.drop()

    def _materialise(self) -> None:
        program, self._program = self._program, None
        self._eager = self._eager or "an exception"
        with self._at_work():
            if program is not None:
                program.materialise()


class _AtWork:
    """While open, a call is at work."""

    __slots__ = ("_call",)

    def __init__(self, call: LiveCall) -> None:
        self._call = call

    def __enter__(self) -> None:
        self._call.put_aside()

    def __exit__(self, *_: object) -> None:
        self._call.take_up()


def _drops_gradients(function: Any, args: tuple[Any, ...]) -> bool:
    if type(function) is OptimizerCall:
        return bool(function.name == "zero_grad")
    is_set = getattr(function, "__name__", "") == "__set__" and function.__self__.__name__ == "grad"
    return is_set and args[1] is None
