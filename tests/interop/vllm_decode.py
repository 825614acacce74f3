"""vllm_decode.py CASE.json OUT.json : answers of vLLM to prompts of token ids, greedy unless the case says how to
sample, in vLLM's own interpreter. vllm_live.py runs it, a process for each case, since a plug-in is loaded once."""
import json
import sys
import time


def accepted(llm):
    """Drafts, tokens drafted and tokens accepted so far."""
    names = {"vllm:spec_decode_num_drafts": 0, "vllm:spec_decode_num_draft_tokens": 0,
             "vllm:spec_decode_num_accepted_tokens": 0}
    for metric in llm.get_metrics():
        if metric.name in names:
            names[metric.name] += metric.value
    return list(names.values())


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        case = json.load(file)
    from vllm import LLM, SamplingParams
    repeats = case.get("repeats", 1)
    llm = LLM(case["model"], dtype="float32", max_model_len=1024, enforce_eager=True,
              max_num_seqs=case.get("n_sequences", 8),
              disable_log_stats=False, gpu_memory_utilization=0.1,  # of all memory, GPU or not
              speculative_config=case["speculative"], skip_tokenizer_init=case.get("ids_alone", False),
              enable_prefix_caching=repeats == 1)  # a repeat is to read its prompts again
    sampling = SamplingParams(**{"temperature": 0, "max_tokens": case["max_tokens"], "detokenize": False,
                                 **case.get("sampling", {})})
    prompts = [{"prompt_token_ids": ids} for ids in case["prompts"]]
    llm.generate(prompts[:1], sampling, use_tqdm=False)  # what is compiled at first use
    before, seconds, cpu = accepted(llm), [], []
    for _ in range(repeats):
        start, start_cpu = time.perf_counter(), time.process_time()
        answers = llm.generate(prompts, sampling, use_tqdm=False)
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
    drafts, drafted, kept = (b - a for a, b in zip(before, accepted(llm)))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump({"ids": [list(a.outputs[0].token_ids) for a in answers], "seconds": seconds, "cpu_seconds": cpu,
                   "drafts": drafts, "drafted": drafted, "accepted": kept}, file)


if __name__ == "__main__":
    main()
