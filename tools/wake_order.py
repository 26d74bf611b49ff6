"""Show who gets connections that reach one listening socket of several processes: ``taskset -c 0 python3 THIS_FILE``.

Eight processes are forked. They register the socket with epoll in the order of forking, and then in the reverse order.
For each order, the numbers are how many of 400 connections each process took, in the order of forking.
"""

import os
import selectors
import socket
import time
from collections import Counter
from collections.abc import Sequence

CONNECTIONS, PAUSE_S = 400, 0.01


def count_connections(order: Sequence[int]) -> list[int]:
    """Return how many connections each process took; ``order`` says which process registers the socket next."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    go, done = [os.pipe() for _ in order], os.pipe()
    processes = [_fork(number, listener, go[number][0], done[1]) for number in range(len(order))]
    for number in order:
        os.write(go[number][1], b"x")
        os.read(done[0], 1)
    took = Counter(_ask(listener) for _ in range(CONNECTIONS))
    for process in processes:
        os.kill(process, 9)
        os.waitpid(process, 0)
    return [took[number] for number in range(len(order))]


def _fork(number: int, listener: socket.socket, go: int, done: int) -> int:
    if process := os.fork():
        return process
    os.read(go, 1)
    poller = selectors.DefaultSelector()
    poller.register(listener, selectors.EVENT_READ)
    os.write(done, b"x")
    while True:
        poller.select()
        _answer(number, listener)


def _answer(number: int, listener: socket.socket) -> None:
    try:
        connection, _ = listener.accept()
    except BlockingIOError:  # another process was quicker
        return
    with connection:
        connection.setblocking(True)
        connection.recv(1)
        connection.sendall(bytes([number]))


def _ask(listener: socket.socket) -> int:
    time.sleep(PAUSE_S)
    with socket.create_connection(listener.getsockname()) as connection:
        connection.sendall(b"x")
        return connection.recv(1)[0]


if __name__ == "__main__":
    print("in the order of forking", count_connections(range(8)))
    print("in the reverse order   ", count_connections(range(7, -1, -1)))
