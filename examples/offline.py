"""Answer several prompts offline with the built-in pair: `python examples/offline.py`."""

# ruff: noqa: T201 (examples print)
from blockdraft import LLM, EngineConfig, FailedPrompt, SamplingParams

PROMPTS = [
    "What is 17 * 24? Think step by step.",
    "A train travels 180 km in 2.5 hours. What is its average speed?",
    "Write a Python function that reverses a string.",
    "Name three colors of the rainbow.",
]


def main() -> None:
    llm = LLM("smollm2", config=EngineConfig(slots=4, max_context=1024))
    print(llm.banner)
    results = llm.generate(PROMPTS, SamplingParams(max_new_tokens=64))
    for prompt, result in zip(PROMPTS, results, strict=True):
        print(f"\n> {prompt}")
        if isinstance(result, FailedPrompt):
            print(f"failed: {result.error}")
        else:
            print(f"{result.text}\n[{result.finish_reason}, tau {result.stats.tau}]")
    print(f"\nwidths chosen (DRAFTxVERIFY: requests): {llm.stats.widths['widths']}")
    print(f"and why: {llm.stats.widths['reasons']}")


if __name__ == "__main__":
    main()
