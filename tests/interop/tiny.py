"""tiny.py : a target of 24 tokens whose next token follows from the last one alone, since its attention gives nothing,
and drafters that are often right: every pair of neighbours in a text is a draw of a distribution that is known."""
import json
import pathlib
import sys

sys.path.append("tests/python")
import chi_square

N_VOCAB, WIDTH, N_DRAWS = 24, 64, 20480
IDS = [13, 1, 21, 2, 8, 3, 19, 5]  # a list, by rank, that leaves most of the vocabulary out


def target(seed=2):
    """transformers' model, attention without output."""
    import torch
    import transformers
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=N_VOCAB, hidden_size=WIDTH, intermediate_size=WIDTH, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=1024, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    model = transformers.LlamaForCausalLM(config).eval().requires_grad_(False)
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            weight.normal_(std=0.2)
    layer = model.model.layers[0]
    layer.self_attn.o_proj.weight.zero_()
    layer.mlp.down_proj.weight.mul_(0.2)  # the state is mostly the token's embedding, which drafters know
    return model


def drafter(model):
    """The same with other weights in its head: a draft model."""
    import copy
    import torch
    other = copy.deepcopy(model)
    torch.manual_seed(3)
    other.lm_head.weight += 0.1 * torch.randn_like(other.lm_head.weight)
    return other


def distribution(model, temperature=1.0, top_k=N_VOCAB):
    """Probabilities [n, n] of the next token by the last."""
    import torch
    logits = model(torch.arange(N_VOCAB)[:, None]).logits[:, -1].double()
    least = logits.topk(top_k).values[:, -1:]
    return chi_square.softmax(logits.where(logits >= least, -torch.inf).numpy() / temperature)


def write_eagle(model, folder):
    """An EAGLE head that passes the token's embedding on."""
    import torch
    from safetensors.torch import save_file
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    layer = {f"layers.0.{name}": weight.contiguous() for name, weight in model.model.layers[0].named_parameters()
             if name != "input_layernorm.weight"}
    save_file({"fc.weight": torch.eye(WIDTH, 2 * WIDTH), **layer}, folder / "model.safetensors")
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 1,
              "hidden_size": WIDTH, "intermediate_size": WIDTH, "num_attention_heads": 2, "num_key_value_heads": 2,
              "max_position_embeddings": 1024, "tie_word_embeddings": False, "torch_dtype": "float32",
              "vocab_size": N_VOCAB}
    (folder / "config.json").write_text(json.dumps(config))


def judge(texts, probabilities):
    """Chi-square of texts of tokens beside the distribution and beside as many tokens of plain sampling.
    @return whether both are what chance allows, and a line that says so."""
    found = chi_square.count(texts, N_VOCAB)
    plain = chi_square.count([chi_square.draw(probabilities, N_DRAWS + 1, 1)], N_VOCAB)
    value, freedom = chi_square.fit(found, probabilities)
    beside, most = chi_square.compare(found, plain)
    good = found.sum() >= N_DRAWS and value < chi_square.bound(freedom) and beside < chi_square.bound(most)
    return good, (f"{found.sum()} draws, chi-square {value:.0f} beside the distribution (at most {chi_square.bound(freedom):.0f}, "
                  f"{freedom} degrees), {beside:.0f} beside plain sampling (at most {chi_square.bound(most):.0f})")
