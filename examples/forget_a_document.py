"""Forget one document: from a collection and a ranker to a ranker that no longer finds it.

python examples/forget_a_document.py COLLECTION RANKER DOCUMENT_ID OUT [TARGET]
"""

from __future__ import annotations

import sys

import unrank


def main(collection_folder: str, ranker_name: str, document: str, out: str, target: str = "places") -> None:
    collection = unrank.open_collection(collection_folder)
    ranker = unrank.load_ranker(ranker_name)
    result = unrank.forget(ranker, collection, unrank.Removal(documents=[document]), target=target)
    before, after = result.before.forget, result.after.forget
    assert before is not None and after is not None
    print(f"{result.state}: {result.judgement.words}")
    print(f"forget MRR {before.mean:.3f} -> {after.mean:.3f}, target {result.target:.3f}")
    print("kept: " + ", ".join(f"{name} {share:.3f}" for name, share in result.kept.items()))
    result.save(out)


if __name__ == "__main__":
    if len(sys.argv) not in (5, 6):
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except unrank.UnrankError as error:
        sys.exit(f"{error}")
