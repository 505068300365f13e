"""Random tests draw the same examples in every run, so that a run can be repeated; Ctrl-C is heard in every run."""

import os
import signal

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

for name in ("COLUMNS", "LINES"):  # GNU readline, which pytest imports, tells child processes of a terminal that there is not
    os.unsetenv(name)

slow = (HealthCheck.too_slow, HealthCheck.filter_too_much)  # a busy machine is no mistake, and rare cases are looked for
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=slow)
settings.load_profile("repeatable")
# Hypothesis also draws the constants of the project's modules that happen to be loaded: other ones in each process of a run.
providers._get_local_constants = lambda: providers._local_constants

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells set it for what they start in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
