"""Sessions of a policy for the batches of vLLM's drafter: one a sequence, over static rows that the policy packed once
and that are multiplied once for the whole batch.

vLLM's order of calls, step by step: the target reads its tokens, verified() is told what it said, propose() begins,
for whose batch sync() teaches the sessions, and best() gives the drafts level by level.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from .metrics import Metrics, sums
from .session import Beam, Policy, Session, Stock, Tree, expand_batch

BLOCK = 128  # prompt positions whose logits exist at a time


class Sequence:
    """A session, and as much of its text as tells whether vLLM goes on where it stands."""

    def __init__(self, session: Session) -> None:
        session.begin()
        self.session = session
        self.n_read = 0  # prompt tokens that the session knows
        self.last = -1   # the newest token, which the target has not read; -1: the prompt goes on
        self.n_plain = 0  # cycles without drafts
        self.told: dict[str, int] = {}  # what collect() has added to metrics

    def follows(self, tokens: np.ndarray, n_draft: int) -> bool:
        """Whether the target just read the newest token and what was drafted after it."""
        return self.last >= 0 and len(tokens) == n_draft + 1 and int(tokens[0]) == self.last

    def read(self, position: int, before: np.ndarray, tokens: np.ndarray, logits: Any) -> None:
        """The next part of a prompt, which a resumed sequence reads again with all that it wrote.

        before: the tokens up to position. logits: None, or a function that gives the target's at tokens[i:j], f32.
        """
        if self.last >= 0 or self.n_read != position:
            self.session.begin()  # which begins its statistics, too
            self.last, self.n_read, self.n_plain, self.told = -1, position, 0, {}
            if position:
                self.session.prefill(before)  # from a cache: what the target said there is not known
        for i in range(0, len(tokens), BLOCK):
            part = tokens[i:i + BLOCK]
            self.session.prefill(part, logits(i, i + len(part)) if logits else None)
        self.n_read += len(tokens)

    def start(self, token: int) -> None:
        self.session.start(token)
        self.last = token

    def observe(self, tokens: np.ndarray, emitted: list[int], logits: Any) -> None:
        """A cycle: the tokens that the target read, what came of it, and its logits f32 [n, n_vocab] there."""
        self.session.observe_chain(tokens, len(emitted) - 1, emitted[-1], logits)
        self.last = emitted[-1]
        self.n_plain += len(tokens) == 1

    def news(self) -> dict[str, int]:
        """What happened since the last call, by the names of metrics.SUMS."""
        now = sums(self.session.stats(), self.n_plain)
        new = {name: n - self.told.get(name, 0) for name, n in now.items()}
        self.told = now
        return new


class Sequences:
    """The batch of a proposer; proposer.propose and proposer._greedy_sample go through it from now on.

    stock: for sequences that start when the batch has at least `crowd`; a lone sequence is slower with it.
    """

    reads_plain = True  # passes without drafts, too

    def __init__(self, policy: Policy, proposer: Any, stock: Stock | None = None, crowd: int = 2) -> None:
        self.policy, self.stock, self.crowd, self.runner = policy, stock, crowd, None
        self.tree = Tree(proposer.num_speculative_tokens, 1, proposer.num_speculative_tokens + 1)
        self.prompts = policy.needs_prompt_logits and proposer.method in ("eagle", "draft_model")  # whose states are the target's
        self.known: dict[str, Sequence] = {}
        self.metrics = Metrics()
        self.batch: list[Sequence] = []
        self.level, self.step = 0, ()
        self._propose, self._full = proposer.propose, proposer._greedy_sample
        proposer.propose, proposer._greedy_sample = self.propose, self.best

    def verified(self, runner: Any, logits: Any, metadata: Any, sampled: Any) -> None:
        """runner: vLLM's, which knows the batch. logits [n, n_vocab] of the target where it sampled; metadata: vLLM's of
        the drafts, None: there were none; sampled [n_sequences, n], -1 behind what was accepted."""
        self.runner, self.step = runner, (logits, metadata.num_draft_tokens if metadata else None, sampled)

    def propose(self, *args: Any, **more: Any) -> Any:
        self.sync(more["target_hidden_states"])
        return self._propose(*args, **more)

    def sync(self, hidden: Any) -> None:
        """Teaches the sessions of the batch. hidden [n_tokens, d]: the target's states at what it read."""
        runner, (logits, drafted, sampled) = self.runner, self.step
        names = runner.input_batch.req_ids
        for name in [name for name in self.known if name not in runner.requests]:
            self.metrics.add(str(self.policy), self.known.pop(name).news())
        bounds = runner.query_start_loc.np
        read = runner.input_ids.gpu[:bounds[len(names)]].numpy()
        sampled, first = sampled.tolist(), 0
        self.batch, self.level = [], 0
        for i, name in enumerate(names):
            if name not in self.known:
                self.known[name] = Sequence(Session(self.policy, logits.shape[-1], self.tree,
                                                    stock=self.stock if len(names) >= self.crowd else None))
            sequence = self.known[name]
            begin, end, n_draft = int(bounds[i]), int(bounds[i + 1]), drafted[i] if drafted else 0
            tokens = read[begin:end]
            emitted = [token for token in sampled[i] if token >= 0]
            if sequence.follows(tokens, n_draft) and emitted:
                sequence.observe(tokens, emitted, logits[first:first + n_draft + 1].float().contiguous())
            else:
                n_kept = len(tokens) - n_draft + max(len(emitted) - 1, 0)  # without what was rejected
                self.metrics.add(str(self.policy), sequence.news())  # the prompt may begin the session anew
                self.prompt(sequence, i, tokens[:n_kept], hidden[begin:end], emitted)
            first += n_draft + 1
            self.batch.append(sequence)

    def collect(self) -> Metrics:
        """Of all sequences until now."""
        for sequence in self.known.values():
            self.metrics.add(str(self.policy), sequence.news())
        return self.metrics

    def prompt(self, sequence: Sequence, i: int, tokens: np.ndarray, hidden: Any, emitted: list[int]) -> None:
        batch = self.runner.input_batch
        position = int(batch.num_computed_tokens_cpu[i])

        def logits(j: int, k: int) -> Any:
            return self.runner.model.compute_logits(hidden[j:k]).float().contiguous()

        sequence.read(position, batch.token_ids_cpu[i, :position], tokens, logits if self.prompts else None)
        if emitted and not self.runner.discard_request_mask.np[i]:  # the whole prompt is read
            sequence.start(emitted[-1])

    def best(self, hidden: Any) -> Any:
        """The next draft token of each sequence: int64 [n]. hidden [n, d]: what the drafter gave."""
        import torch
        if len(hidden) != len(self.batch):
            return self._full(hidden)
        level, drafts = self.level, [i for i, s in enumerate(self.batch) if s.last >= 0]
        self.level += 1
        out = torch.zeros(len(hidden), dtype=torch.int64)  # a prompt that goes on: vLLM drops what is drafted
        sessions = [self.batch[i].session for i in drafts]
        beams = expand_batch(sessions, hidden[drafts].float().contiguous())
        out[drafts] = torch.tensor([self.token(*pair, level) for pair in zip(sessions, beams)], dtype=torch.int64)
        return out

    @staticmethod
    def token(session: Session, beam: Beam, level: int) -> int:
        if len(beam.tokens):
            return int(beam.tokens[0])
        tokens = session.finish().tokens  # the last level has no beam
        return int(tokens[min(level + 1, len(tokens) - 1)])
