"""Live steps: the step function's own Python runs at every call, and only its tensor work is deferred and planned.

stand_in.py       tensors without data, which the function gets for what is not computed yet
atoms.py          what is deferred as a whole: modules, backward, optimizers, clipping
log.py            the deferred calls of a program, and whether another call is the same
operands.py       what the arguments of calls are, in terms of their program
modes.py          the modes that a call is made under
streams.py        the CUDA stream of a program
random_state.py   the default generator while draws are deferred
numbers.py        numbers of live Python that are others at every call
rates.py          hyper-parameters of an optimizer when its step was deferred
watched_state.py  the state of an optimizer whose step is deferred
own.py            what belongs to the model
wording.py        logs in words
audits.py         what was captured, captured anew and compared
capturing.py      a capture that is made call by call
recording.py      the recording of a program, call by call
liveness.py       which variables no later instruction reads
paused.py         a captured step that waits for what Python makes of a value
deferring.py      one program of one call: recorded or followed, launched or materialised
live_call.py      one call of the function, as a sequence of programs
live_step.py      the logs of a function and what becomes of it
"""
