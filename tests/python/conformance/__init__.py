"""References of the papers' methods, written from the papers' equations alone, beside specrt on random cycles. One file
a method; cycles.py makes the cycles. Every test compares after every cycle, and SEEDS=N runs N random sequences of each
test in place of the few that CI runs:

    make test-python SEEDS=200
"""
