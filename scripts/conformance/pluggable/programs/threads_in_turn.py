"""Eight threads that request memory in turn."""

import random
import threading

import torch
from harness import MB, bytes_on_gpu, record_history, report

record_history()
turn = [0]
done = threading.Condition()


def work(number):
    choice, live = random.Random(number), []
    with torch.cuda.stream(torch.cuda.Stream() if number % 2 else torch.cuda.default_stream()):
        for step in range(200):
            with done:
                done.wait_for(lambda: turn[0] % 8 == number)
                live.append(bytes_on_gpu(choice.choice([1, 5000, 3 * MB, 30 * MB])))
                if len(live) > 5:
                    live.pop(choice.randrange(len(live)))
                turn[0] += 1
                done.notify_all()
        with done:
            done.wait_for(lambda: turn[0] % 8 == number)
            live.clear()
            turn[0] += 1
            done.notify_all()


threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
report()
