"""The profiler's view of memory."""

import torch
from harness import MB, bytes_on_gpu, record_history, report, said

record_history()
with torch.profiler.profile(profile_memory=True, acc_events=True) as profiler:
    a = [bytes_on_gpu(n * MB) for n in (1, 3, 30)]
    del a[1]
events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
said.append(sorted(str(e.nbytes()) for e in events))
report()
