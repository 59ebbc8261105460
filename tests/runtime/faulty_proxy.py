"""A proxy that stands before a process and treats what is sent to it badly."""

import random
import threading
import time

import zmq


class Proxy:
    """Takes in frames at one address and passes them on to another, or not, or twice, or later.

    ``faults`` are the probabilities of ``drop``, ``repeat`` and ``delay`` (by up to 80 ms, so that
    later frames overtake). ``passed`` and ``hurt`` count frames.
    """

    def __init__(self, context, address, target, faults, seed):
        self.passed, self.hurt = 0, 0
        self.faults, self.random = dict(faults), random.Random(seed)
        self._in = context.socket(zmq.ROUTER)
        self._in.linger = 0
        self._in.bind(address)
        self._out = context.socket(zmq.DEALER)
        self._out.linger = 0
        self._out.immediate = 1
        self._out.connect(target)
        self._late = []
        self._stop = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self):
        self._stop = True
        self._thread.join()
        self._in.close()
        self._out.close()

    def _run(self):
        while not self._stop:
            self._in.poll(5)
            while True:
                try:
                    self._treat(self._in.recv_multipart(zmq.NOBLOCK)[-1])
                except zmq.Again:
                    break
            now = time.monotonic()
            due = [entry for entry in self._late if entry[0] <= now]
            self._late = [entry for entry in self._late if entry[0] > now]
            for _, data in due:
                self._pass(data)

    def _treat(self, data):
        draw = self.random.random()
        for fault, share in self.faults.items():
            if draw < share:
                self.hurt += 1
                if fault == "repeat":
                    self._pass(data)
                    self._pass(data)
                elif fault == "delay":
                    self._late.append((time.monotonic() + self.random.random() * 0.08, data))
                return
            draw -= share
        self._pass(data)

    def _pass(self, data):
        self.passed += 1
        try:
            self._out.send(data, zmq.NOBLOCK)
        except zmq.Again:
            self.hurt += 1
