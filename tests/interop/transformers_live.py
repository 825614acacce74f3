#!/usr/bin/env python3
"""specrt.TrimmedHead in transformers' assisted generation: the sample target with its small drafter as an
assistant, whose head scores a list's rows, writes the tokens of plain decoding, and of specrt-eval. Sampled tokens (of
a tiny pair) are of the target's distribution."""
import json

import live
import tiny

SIZES, N_PROMPTS, N_TOKENS, N_DRAFTED = [8192, 1024], 10, 64, 4
TERMINATORS = {32753, 32761}


class Models:
    """Target and assistant, and how often each was called."""

    def __init__(self):
        import hf_folder
        import torch
        import transformers
        transformers.logging.set_verbosity_error()
        hf_folder.write(live.SMALL, live.work / "small", live.TOKENIZER)
        load = transformers.AutoModelForCausalLM.from_pretrained
        self.target = load(live.target_folder(), dtype=torch.float32)
        self.assistant = load(live.work / "small", dtype=torch.float32)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(live.work / "target")
        settings = self.assistant.generation_config
        settings.num_assistant_tokens, settings.num_assistant_tokens_schedule = N_DRAFTED, "constant"
        settings.assistant_confidence_threshold = 0.0
        self.full, self.passes = self.assistant.lm_head, 0
        self.target.register_forward_hook(self.count)

    def count(self, *_):
        self.passes += 1

    def answer(self, ids, **more):
        """Greedy tokens after ids, terminator included."""
        import torch
        out = self.target.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                                   max_new_tokens=N_TOKENS, do_sample=False, pad_token_id=min(TERMINATORS),
                                   eos_token_id=sorted(TERMINATORS), **more)
        return out[0, len(ids):].tolist()


def without_end(ids):
    """One side writes the terminator, the other does not."""
    return ids[:-1] if ids and ids[-1] in TERMINATORS else ids


def ours(prompts):
    """Greedy answers of specrt-eval."""
    path = live.work / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt_ids": ids}) + "\n" for ids in prompts))
    lines = live.tool("specrt-eval", "generate", "--target", live.TARGET, "--prompts", path, "--max-tokens", N_TOKENS,
                      "--ids", "-q", "-o", "-")
    return [json.loads(line)["ids"] for line in lines.splitlines()]


def assisted(models, prompts, plain, name):
    models.passes = 0
    answers = [models.answer(ids, assistant_model=models.assistant) for ids in prompts]
    same = sum(a == b for a, b in zip(answers, plain))
    each = sum(map(len, answers)) / models.passes
    live.check(same == len(prompts) and each > 1.1,
               f"assistant, {name}: {same}/{len(prompts)} answers are those of plain decoding, "
               f"{each:.3f} tokens a pass of the target")


def sampled():
    """Tokens at temperature 1 of the tiny pair, whose assistant samples from a list's rows."""
    import specrt
    import torch
    model = tiny.target()
    distribution, assistant = tiny.distribution(model), tiny.drafter(model)
    settings = assistant.generation_config
    settings.num_assistant_tokens, settings.num_assistant_tokens_schedule = N_DRAFTED, "constant"
    settings.assistant_confidence_threshold = 0.0
    assistant.lm_head = specrt.TrimmedHead(assistant.lm_head, tiny.IDS)
    n_each, passes = 640, []
    hook = model.register_forward_hook(lambda *_: passes.append(1))

    def texts(prompts, **more):
        return model.generate(prompts, attention_mask=torch.ones_like(prompts), do_sample=True, top_k=0, top_p=1.0,
                              temperature=1.0, max_new_tokens=n_each, pad_token_id=0, **more).tolist()
    torch.manual_seed(5)
    first = torch.arange(tiny.N_DRAWS // n_each)[:, None] % tiny.N_VOCAB
    good, line = tiny.judge(texts(first), distribution)
    live.check(good, f"sampled, plain: {line}")
    passes.clear()
    good, line = tiny.judge([texts(prompt[None], assistant_model=assistant)[0] for prompt in first], distribution)
    each = len(first) * n_each / len(passes)
    live.check(good and each > 1.2, f"sampled, assistant with TrimmedHead of {len(tiny.IDS)} of {tiny.N_VOCAB} rows, "
               f"{each:.3f} tokens a pass of the target: {line}")
    hook.remove()


def main():
    import specrt
    sampled()
    models = Models()
    prompts = [models.tokenizer.encode(live.TEMPLATE.format(text), add_special_tokens=False)
               for text in live.prompts(N_PROMPTS)]
    plain = [models.answer(ids) for ids in prompts]
    same = sum(without_end(a) == without_end(b) for a, b in zip(plain, ours(prompts)))
    live.check(same == len(prompts), f"plain: {same}/{len(prompts)} answers are those of specrt-eval")
    assisted(models, prompts, plain, "whole head")
    with specrt.Bundle(live.bundle()) as bundle:
        for size in SIZES:
            models.assistant.lm_head = specrt.TrimmedHead(models.full, bundle.ids(size))
            assisted(models, prompts, plain, f"TrimmedHead of {size} rows")


if __name__ == "__main__":
    live.run(main, "transformers", "torch")
