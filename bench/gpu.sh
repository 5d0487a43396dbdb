#!/usr/bin/env bash
# Tests and benchmarks for a machine with a GPU (CUDA): bench/gpu.sh [PART..].
#
#   tests     the tests that need a GPU; the warnings list each line of Python that waits for the GPU
#   training  the presets tiny and paper-base beside torch.nn.Transformer (also compiled) and Marian's
#             model: target tokens a second, share of the peak of products, memory, and the kernels of paper-base's step
#   search    the shape of the paper's base model, greedy and beam 4, on the GPU (in fp16 also with scores) and by the
#             compiled core on the CPUs, beside generate of Hugging Face and, where it is installed, CTranslate2
#
# It uses the Python of $PYTHON (default: python3) with what is installed there, and no network. The figures are also
# written as JSON to $RESULTS (default: build/gpu). $TRAINING and $SEARCH are further options of bench/train.py and
# bench/translate.py, which change those below: TRAINING="--cases small paper-big", or, without a GPU,
# TRAINING="--device cpu --cases toy --profile toy --batch-tokens 96 --matrix 256" and
# SEARCH="--cases toy --engines clearhead --sentences 8 --batch 4". Each part is planned to take less than five minutes.
set -uo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] && parts=("$@") || parts=(tests training search)
for part in "${parts[@]}"; do
    case $part in
        tests | training | search) ;;
        *) echo "no part '$part'; there are: tests training search" >&2 && exit 2 ;;
    esac
done
python=${PYTHON:-python3} results=${RESULTS:-build/gpu}
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
mkdir -p "$results"
[ -e src/clearhead/kernels/_core.so ] || "$python" setup.py -q build_ext --inplace

tests() {
    # Named, so that nothing else is imported; the warnings of other versions of libraries are no failures here.
    "$python" - -m gpu -W always -p no:cacheprovider -p no:benchmark \
        tests/unit/{decoding/test_decoding_on_devices,kernels/test_packed_attention,training/test_packed_step}.py \
        tests/unit/{training/test_training_on_devices,translation/test_translator_on_gpu}.py <<'EOF'
import sys
import pytest, torch

if torch.cuda.is_available():
    torch.cuda.set_sync_debug_mode("warn")
sys.exit(pytest.main(sys.argv[1:]))
EOF
}

training() {
    # Steps of 8,192 target tokens: the logits of every candidate fit into memory. Four candidates compile at the same time.
    TORCHINDUCTOR_COMPILE_THREADS=4 "$python" bench/train.py --device cuda --synthetic --together --threads 4 --matrix 8192 \
        --cases tiny paper-base --candidates clearhead torch.nn torch.nn-compiled marian \
        --batch-tokens 8192 --profile paper-base --json "$results/training.json" ${TRAINING:-}
}

search() {
    "$python" bench/translate.py --cases paper-base-many --beams 1 4 --batch 256 --rounds 2 \
        --threads "$(nproc)" --json "$results/search.json" \
        --engines clearhead clearhead-gpu clearhead-gpu-{bf16,fp16,fp16-scored} huggingface-gpu-fp16 \
        ctranslate2-gpu-fp16 ${SEARCH:-}
}

failed=()
for part in "${parts[@]}"; do
    SECONDS=0
    echo "== $part"
    "$part" || failed+=("$part")
    echo "== $part: $SECONDS s"
done
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
