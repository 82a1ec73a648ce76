"""The allow-list of model folders: the files that are opened, the types of models and modules, the keys of settings.

A model may come from strangers, and the libraries that load it do what its files say: which classes to import, which
files to read. So everything is listed here. `folder_check.py` refuses what is not.
"""

from __future__ import annotations

import re

SUFFIXES = {
    ".json", ".jsonl", ".safetensors", ".txt", ".model", ".spm", ".codes", ".tokenizer", ".tiktoken", ".jinja", ".md",
    ".metadata",
}  # fmt: skip
"""Endings of the files that may be opened."""
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
OPENED = ("pytorch_model", "model", "adapter_model")
"""Prefixes of the pickled files that a library opens if it finds no safetensors."""
CONVERT = (
    "pickled weights, which can run code and are never opened; load the model once where you trust it and write it "
    "again with save_pretrained(..., safe_serialization=True)"
)

MODEL_TYPES = {
    "albert", "bart", "bert", "big_bird", "bloom", "camembert", "convbert", "data2vec-text", "deberta", "deberta-v2",
    "distilbert", "electra", "ernie", "eurobert", "falcon", "flaubert", "fnet", "funnel", "gemma", "gemma2",
    "gemma3_text", "gpt2", "gpt_neo", "gpt_neox", "gptj", "granite", "ibert", "jina_embeddings_v3", "llama",
    "longformer", "longt5", "luke", "mbart", "megatron-bert", "ministral", "mistral", "mobilebert", "modernbert",
    "modernbert-decoder", "mpnet", "mra", "mt5", "nomic_bert", "nystromformer", "olmo", "olmo2", "openai-gpt", "opt",
    "phi", "phi3", "qwen2", "qwen3", "rembert", "roberta", "roberta-prelayernorm", "roformer", "smollm3", "splinter",
    "squeezebert", "stablelm", "starcoder2", "t5", "t5gemma", "umt5", "xlm", "xlm-roberta", "xlm-roberta-xl", "xlnet",
    "xmod", "yoso",
}  # fmt: skip
"""Families of transformers that read text and nothing else. Others open images, sound or further models."""

TOKENIZER_CLASSES = {
    "Albert", "Bart", "Barthez", "Bert", "Bertweet", "BigBird", "Bloom", "Camembert", "CodeGen", "Cohere", "ConvBert",
    "Deberta", "DebertaV2", "DistilBert", "Electra", "FNet", "Flaubert", "Funnel", "GPT2", "GPTNeoX", "Gemma",
    "Herbert", "Llama", "Longformer", "Luke", "MBart", "MPNet", "MT5", "MobileBert", "OpenAIGPT", "Phobert",
    "PreTrained", "Qwen2", "RemBert", "RoFormer", "Roberta", "Splinter", "SqueezeBert", "T5", "XLM", "XLMRoberta",
    "XLNet",
}  # fmt: skip
"""Classes of tokenizers, without the ending. Others read dictionaries of the system, or more models."""

DIMENSION = {"embedding_dimension", "word_embedding_dimension"}
POOLED = {"cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"}
FEATURES = {"module_input_name", "module_output_name"}
ROUTES = {"types", "structure", "parameters", "default_route", "allow_empty_key", "route_mappings"}
ARGUMENTS = {f"{part}_{word}" for part in ("model", "config", "tokenizer", "processor") for word in ("args", "kwargs")}
TRANSFORMER = {
    "max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name",
    "processing_kwargs", "unpad_inputs", "query_length", "document_length", "query_expansion", *ARGUMENTS,
}  # fmt: skip
MODULES: dict[str, set[str]] = {
    "Transformer": TRANSFORMER,
    "MLMTransformer": TRANSFORMER,
    "Pooling": {"pooling_mode", "include_prompt", *DIMENSION, *(f"pooling_mode_{each}" for each in POOLED)},
    "Normalize": FEATURES,
    "Dense": {"in_features", "out_features", "bias", "activation_function", "use_residual", *FEATURES},
    "LayerNorm": {"dimension"},
    "Dropout": {"dropout"},
    "WeightedLayerPooling": {"layer_start", "num_hidden_layers", *DIMENSION},
    "Router": ROUTES,
    "Asym": ROUTES,
    "MultiVectorMask": {"skiplist_words", "skiplist_tasks", "keep_only_token_ids"},
    "HierarchicalTokenPooling": {"pool_factor", "num_protected_tokens", "tasks"},
    "SpladePooling": {"pooling_strategy", "activation_function", *DIMENSION},
    "StaticEmbedding": set(),
    "SparseStaticEmbedding": {"frozen"},
    "LogitScore": {"true_token_id", "false_token_id", "module_input_name"},
}  # fmt: skip
"""The modules of sentence-transformers and PyLate that are built, and the keys of their settings."""
LARGEST_NUMBER = 2**20
"""The largest number in a module's settings: a size, a length or the id of a token."""
LONGEST_TEXT = 10_000
"""The longest text in a module's settings, such as a prompt that is put before every text."""
MODULE = re.compile(r"(sentence_transformers|pylate)\.[\w.]*?(\w+)")
SENTENCE_CONFIG = re.compile(r"sentence_(bert|roberta|distilbert|camembert|albert|xlm-roberta|xlnet)_config\.json")
ACTIVATION = re.compile(r"torch\.nn\.(modules\.\w+\.)?[A-Z]\w*")
ATTENTIONS = (None, "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
ACTIVATIONS = {"activation_fn", "activation_function", "sbert_ce_default_activation_function"}
ATTENTION = {"attn_implementation", "_attn_implementation", "_attn_implementation_internal"}
HARMLESS = {"dtype", "torch_dtype", "attn_implementation", "model_max_length", "do_lower_case", "use_fast"}

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""The files of an adapter, as peft writes them."""
ADAPTER_KEYS = {
    "alpha_pattern", "auto_mapping", "base_model_name_or_path", "bias", "ensure_weight_tying", "exclude_modules",
    "fan_in_fan_out", "inference_mode", "init_lora_weights", "layers_pattern", "layers_to_transform", "lora_alpha",
    "lora_bias", "lora_dropout", "megatron_core", "modules_to_save", "peft_type", "peft_version", "qalora_group_size",
    "r", "rank_pattern", "revision", "target_modules", "task_type", "use_dora", "use_rslora",
}  # fmt: skip
"""The keys of an adapter that may have a value. Others must be empty: they import code, or do more than LoRA does."""
MOST_RANK = 4_096
"""The largest rank of an adapter that is read."""

LABELS, MOST_LABELS = ("num_labels", "_num_labels"), 2**16
"""The most labels of a classifier: a library makes up a name for each before it reads the weights."""

CONFIGS = {
    "config.json", "config_sentence_transformers.json", "modules.json", "router_config.json", "tokenizer_config.json",
    "special_tokens_map.json", "generation_config.json", "preprocessor_config.json", "processor_config.json",
    "video_preprocessor_config.json", "audio_tokenizer_config.json", "chat_template.json", "artifact.metadata",
}  # fmt: skip
"""The files whose keys are checked, besides the settings of modules."""
PROMPTED = {"config_sentence_transformers.json", "artifact.metadata"}
"""The files with prompts and lengths of a whole model."""
TOKENIZER = re.compile(r"tokenizer(\.[\d.]+)?\.json")
SHARDS = ".safetensors.index.json"
LARGEST_CONFIG = 2**24
LARGEST_TOKENIZER = 2**28
LARGEST_FILE = 2**30
"""The largest sizes in bytes of a description, of a tokenizer, and of any file but weights."""
ONLY_NOTED = {"name_or_path", "_name_or_path", "special_tokens_map_file"}
"""Keys that say where a model once lay. No library follows them."""
DESCRIPTION = "ranker.json"
"""The file by which a folder of unrank's own layout is known."""
