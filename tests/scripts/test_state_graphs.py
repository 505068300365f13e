"""The script that counts states of state graphs."""

import re
import sys

import pytest
import state_graphs


def test_states_and_what_is_given_up(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        state_graphs, "PIPELINES", {name: state_graphs.PIPELINES[name] for name in list(state_graphs.PIPELINES)[:2]}
    )
    monkeypatch.setattr(sys, "argv", ["state_graphs.py", "--most", "120000", "--runs", "1"])
    state_graphs.main()
    _, measured, unit = capsys.readouterr().out.splitlines()
    assert "more than 120000 states: given up" in measured
    # each of eight devices may idle or run one of three: only few of these choices together lead anywhere
    assert re.search(r"108486 +480053 ", unit)
