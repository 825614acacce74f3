#!/usr/bin/env python3
"""Ordered heads that specrt-bundle writes, in the classes of transformers (the whole model), vLLM and SGLang: a dense
drafter of Gemma 4's kind with random weights gets clusters, frequent tokens with one cluster, and a list, and all draft
the token that our policy drafts. vLLM's and SGLang's classes are taken from the files of their packages, which are not
imported; without a package its class is skipped with a line. Run from the project's root: make interop NAMES=..."""
import ast
import importlib.util
import logging
import pathlib

import live

N_STATES, N_VOCAB, WIDTH, BACKBONE = 200, live.N_VOCAB, 64, 96
HEADS = {"clusters": (["--clusters", "256", "--schedule", "16"], [], "centroid:16@always=0"),
         "frequent tokens and a cluster": (["--clusters", "32", "--hot", "256", "--schedule", "1"], [],
                                           "centroid:1@always=0"),
         "copies": (["--clusters", "256", "--distinct", "8192", "--schedule", "16"], [], "centroid:16@always=0"),
         "list": (None, ["--clusters", "32", "--hot", "1024"], "static:1024")}


def dense():
    """A drafter's folder as transformers writes it."""
    import torch
    from transformers import Gemma4AssistantConfig, Gemma4AssistantForCausalLM, Gemma4TextConfig
    text = Gemma4TextConfig(vocab_size=N_VOCAB, hidden_size=WIDTH, intermediate_size=128, num_hidden_layers=2,
                            num_attention_heads=2, num_key_value_heads=1, head_dim=32, global_head_dim=32,
                            num_kv_shared_layers=2, hidden_size_per_layer_input=0, vocab_size_per_layer_input=0,
                            layer_types=["sliding_attention", "full_attention"])
    torch.manual_seed(1)
    model = Gemma4AssistantForCausalLM(Gemma4AssistantConfig(text_config=text, backbone_hidden_size=BACKBONE))
    torch.nn.init.normal_(model.model.embed_tokens.weight)
    model.to(torch.bfloat16).save_pretrained(live.work / "dense")
    return live.work / "dense"


def ordered(name, folder):
    """The folder with an ordered head, and the bundle that it is made from."""
    build, export, _ = HEADS[name]
    bundle, out = live.work / f"{name}.specb", live.work / name
    bundle.write_bytes(live.bundle().read_bytes())
    if build:
        live.tool("cluster-build", "--model", folder, "--tokenizer", live.TOKENIZER, "--ordered", *build, "-q", "-f", "-o",
                  bundle)
    live.tool("specrt-bundle", "export", bundle, "--drafter", folder, "--for", "gemma4", *export, "-q", "-o", out)
    live.tool("specrt-bundle", "check", out, "--for", "gemma4", "-q")
    return bundle, out


def lift(package, path, names, world):
    """Classes and methods of a package's file, without importing the package. @return whether it is there."""
    found = importlib.util.find_spec(package)
    file = found and pathlib.Path(found.submodule_search_locations[0]) / path
    if not file or not file.exists():
        print(f"skipped: {package} is not installed")
        return False
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in names:
            node.decorator_list = []
            exec(compile(ast.Module([node], []), str(file), "exec"), world)
    return True


def vllm_tokens(head, weight, states):
    import torch
    world = {"nn": torch.nn, "torch": torch}
    if not lift("vllm", "model_executor/models/gemma4_mtp.py", ["Gemma4MTPMaskedEmbedder"], world):
        return None
    embedder = world["Gemma4MTPMaskedEmbedder"](WIDTH, N_VOCAB, head.num_centroids, head.centroid_intermediate_top_k)
    embedder.load_state_dict(head.state_dict())
    tokens = embedder(states, weight).argmax(-1)
    assert torch.equal(tokens, embedder.get_top_tokens(states, weight))
    return tokens.tolist()


def sglang_tokens(head, weight, states):
    import torch
    names = ["_apply_centroid_masking", "_reorder_embedding_to_centroid_order"]
    world = {"torch": torch, "logger": logging.getLogger()}
    if not lift("sglang", "srt/models/gemma4_mtp.py", names, world):
        return None
    model = type("Model", (torch.nn.Module,), {name: world[name] for name in names})()
    model.hidden_size, model.vocab_size, model.num_centroids = WIDTH, N_VOCAB, head.num_centroids
    model.vocab_size_per_centroid = N_VOCAB // head.num_centroids
    model.centroid_intermediate_top_k = head.centroid_intermediate_top_k
    model.centroids, model.token_ordering = head.centroids, head.token_ordering
    model.lm_head = torch.nn.Linear(WIDTH, N_VOCAB, bias=False)
    model.lm_head.weight.data.copy_(weight)
    model._reorder_embedding_to_centroid_order()
    return model._apply_centroid_masking(states).argmax(-1).tolist()


def our_tokens(policy, bundle, weight, states):
    """The best token of a session's shortlist for each state."""
    import specrt
    out = []
    with specrt.Bundle(bundle) as opened, specrt.Head(weight) as head, \
            specrt.Policy(policy, head, bundle=opened) as made, \
            specrt.Session(made, n_logits=N_VOCAB, tree=specrt.Tree(1, 1, 2)) as session:
        for state in states:
            session.begin(max_tokens=8)
            session.prefill([5])
            session.start(7)
            session.beam()
            session.expand(state[None])
            ids = session.shortlist()
            out.append(int(ids[(weight[ids] @ state).argmax()]))
    return out


def model_tokens(model):
    """States that the whole model gives its head, and the tokens of its logits."""
    import torch
    states = []
    model.masked_embedding.register_forward_hook(lambda module, given, out: states.append(given[0]))
    kinds = "full_attention", "sliding_attention"
    cache = {kind: (torch.randn(N_STATES, 1, 4, 32), torch.randn(N_STATES, 1, 4, 32)) for kind in kinds}
    logits = model(inputs_embeds=torch.randn(N_STATES, 1, 2 * BACKBONE), shared_kv_states=cache,
                   position_ids=torch.full((N_STATES, 1), 4)).logits
    return states[0][:, 0], logits[:, 0].argmax(-1).tolist()


def try_head(name, folder, forced):
    import torch
    from transformers import Gemma4AssistantForCausalLM
    bundle, out = ordered(name, folder)
    model = Gemma4AssistantForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
    torch.manual_seed(2)
    states, tokens = model_tokens(model)
    weight = model.lm_head.weight.detach()
    best = our_tokens(HEADS[name][2], bundle, weight.numpy(), states.numpy())
    same = sum(a == b or b in forced for a, b in zip(tokens, best))
    whole = sum(int((weight @ s).argmax()) == t for s, t in zip(states, tokens))
    live.check(same == N_STATES and len(set(tokens)) > 20,
               f"{name}, transformers' whole model: {same} of {N_STATES} tokens are ours, {whole} the whole head's")
    for engine, found in (("vLLM", vllm_tokens(model.masked_embedding, weight, states)),
                          ("SGLang", sglang_tokens(model.masked_embedding, weight, states))):
        if found is not None:
            live.check(found == tokens, f"{name}, {engine}'s class: the tokens of transformers")


def main():
    import torch
    folder = dense()
    forced = set(live.ranked(6))  # terminators are in all of our shortlists
    with torch.no_grad():
        for name in HEADS:
            try_head(name, folder, forced)


if __name__ == "__main__":
    live.run(main, "transformers", "torch")
