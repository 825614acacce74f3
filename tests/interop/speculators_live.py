#!/usr/bin/env python3
"""Our files under speculators' names: its trainer's loader takes d2t-N.npy and t2d-N.npy, its own mapping of our
token_freq.pt is the same, and its EAGLE-3 model takes the buffers."""
import live

SIZE = 8192


def model(size):
    import transformers
    from speculators import SpeculatorsConfig, VerifierConfig
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
    from speculators.proposals import GreedyTokenProposalConfig
    folder = live.target_folder()
    layer = transformers.LlamaConfig.from_pretrained(folder)
    layer.num_hidden_layers, layer._attn_implementation = 1, "eager"
    greedy = GreedyTokenProposalConfig(speculative_tokens=4)
    verifier = VerifierConfig(name_or_path=str(folder), architectures=["LlamaForCausalLM"])
    config = SpeculatorsConfig(algorithm="eagle3", proposal_methods=[greedy], default_proposal_method="greedy",
                               verifier=verifier)
    return Eagle3DraftModel(Eagle3SpeculatorConfig(transformer_layer_config=layer, draft_vocab_size=size,
                                                   norm_before_residual=False, speculators_config=config))


def main():
    import torch
    from speculators.train.cli import _load_mappings
    from speculators.train.vocab_mapping import build_vocab_mappings_from_distribution
    folder, ids = live.export("speculators", SIZE, "data"), sorted(live.ranked(SIZE))
    d2t, t2d, n = _load_mappings(folder / f"d2t-{SIZE}.npy", folder / f"t2d-{SIZE}.npy", SIZE)
    live.check(n == SIZE and (d2t + torch.arange(n)).tolist() == ids == t2d.nonzero().flatten().tolist(),
               f"_load_mappings: {SIZE} ids, those of the list")
    counts = torch.load(live.export("token-freq", SIZE, "token_freq.pt"), weights_only=True)
    theirs = build_vocab_mappings_from_distribution(token_freq_dict=counts, draft_vocab_size=SIZE,
                                                    target_vocab_size=live.N_VOCAB)
    live.check(torch.equal(theirs[0], d2t) and torch.equal(theirs[1], t2d),
               "build_vocab_mappings_from_distribution: the same mapping from our token-freq")
    drafter = model(SIZE)
    drafter.load_vocab_mappings(t2d, d2t)
    live.check(torch.equal(drafter.d2t, d2t) and torch.equal(drafter.t2d, t2d),
               "Eagle3DraftModel.load_vocab_mappings: the same buffers")


if __name__ == "__main__":
    live.run(main, "speculators", "transformers", "torch")
