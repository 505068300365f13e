"""What the form is given so that a search goes on for a while."""

HARD = {
    "pipeline__devices": "8",
    "pipeline__microbatches": "48",
    "pipeline__placement": "wave",
    "pipeline__chunks": "2",
    "costs__forward": "3, 4, 5, 6, 7, 3, 4, 5",
    "costs__backward_input": "7",
    "costs__backward_weight": "4, 2, 5, 3, 6, 4, 5, 3",
    "links__latency": "1",
    "memory__limit": "3",
}
"""A pipeline that a search does not settle in minutes: after one minute the gap is 16 %."""
