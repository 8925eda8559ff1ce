import os
import signal

import pytest

from phcgnn.training.interrupt import StopRequest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_second_acts(number):
    def act(got, frame):
        raise KeyboardInterrupt(got)

    before = signal.signal(number, act)
    try:
        with StopRequest() as stop:
            assert stop.wanted is None
            os.kill(os.getpid(), number)
            assert stop.wanted == signal.Signals(number).name
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
        assert signal.getsignal(number) is act
    finally:
        signal.signal(number, before)
