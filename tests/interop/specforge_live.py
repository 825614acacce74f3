#!/usr/bin/env python3
"""Our eagle3-pt in SpecForge: its EAGLE-3 drafter loads the file, its own check passes, the buffers name the ids
of the list, and its own mapping of the same counts is the same."""
import collections

import live

SIZE = 8192


def main():
    import torch
    import transformers
    from specforge.core.compact_teacher import validate_vocab_mapping_consistency
    from specforge.data.preprocessing import process_token_dict_to_mappings
    from specforge.modeling.draft.llama3_eagle import LlamaForCausalLMEagle3
    path, ids = live.export("eagle3-pt", SIZE, "mapping.pt"), sorted(live.ranked(SIZE))
    config = transformers.LlamaConfig(vocab_size=live.N_VOCAB, hidden_size=64, intermediate_size=96,
                                      num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=1)
    config.draft_vocab_size, config.target_hidden_size = SIZE, 64
    model = LlamaForCausalLMEagle3(config)
    model.load_vocab_mapping(path)
    validate_vocab_mapping_consistency(model.t2d, model.d2t)
    live.check((model.d2t + torch.arange(SIZE)).tolist() == ids == model.t2d.nonzero().flatten().tolist(),
               f"load_vocab_mapping: buffers of {SIZE} ids, those of the list")
    counts = torch.load(live.export("token-freq", SIZE, "token_freq.pt"), weights_only=True)
    d2t, t2d = process_token_dict_to_mappings(collections.Counter(counts), SIZE, live.N_VOCAB)
    live.check(torch.equal(d2t, model.d2t) and torch.equal(t2d, model.t2d),
               "process_token_dict_to_mappings: the same mapping from our token-freq")


if __name__ == "__main__":
    live.run(main, "specforge", "transformers", "torch")
