from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch

from clearhead.bundle import load_bundle
from clearhead.decoding import make_engine
from clearhead.errors import ClearheadError, CompiledCoreWarning, DeviceError
from clearhead.kernels import library as library_module
from clearhead.kernels.library import describe, form, has_amx, library
from clearhead.kernels.panels import LANES, PANEL, make_product
from clearhead.kernels.structs import ADDRESSES, CONSTANTS, STRUCTS, read_constants, read_structures
from clearhead.runtime.installation import pip_install

needs_core = pytest.mark.skipif(library() is None, reason="needs the compiled core")
needs_amx = pytest.mark.skipif(not has_amx(), reason="needs the compiled core, and a processor with AMX")


ROUNDED = ("bf16", "bf16x3", "int8")
FORMS = [
    pytest.param("fp32", False, marks=needs_core, id="fp32"),
    *(pytest.param(form, True, marks=needs_amx, id=f"{form}-amx") for form in ROUNDED),
    *(pytest.param(form, False, marks=needs_core, id=form) for form in ROUNDED),
]
NUM_ROWS = [1, 2, 7, 11, 12, 13, 15, 16, 17, 24, 31, 32, 33, 47, 48, 49, 63, 64, 65, 70]


pytestmark = pytest.mark.usefixtures("inference")


@pytest.fixture
def forget_the_library():
    """Let a test look for the core anew, and the next one too."""
    functions = (library, library_module._load, form)
    for function in functions:
        function.cache_clear()
    yield
    for function in functions:
        function.cache_clear()


def multiply(rows, weight, bias, precision, on_amx=None, team=None):
    """Return rows times a matrix: what an encoder without layers gives whose output is that product."""
    core = library()
    product = make_product(weight, bias, precision, on_amx=on_amx)
    stack = STRUCTS["Stack"](d_model=rows.size(1), num_heads=1, d_k=16, d_v=16, d_ff=32, num_layers=0)
    stack.layers, stack.output = (STRUCTS["Layer"] * 1)(), product
    tokens = STRUCTS["Tokens"](embedding_scale=1.0).point(embedding=rows.contiguous())
    each = np.arange(len(rows), dtype=np.int32)  # every row is a sentence of one token
    memory = torch.full((len(rows) + 1, product.outputs // PANEL, 2, 16, LANES), float("-inf"))
    scratch = torch.empty(core.scratch_size(stack, len(rows), 1, 0, False), dtype=torch.uint8)
    sources = STRUCTS["Sources"](num_rows=len(rows), longest=1).point(memory=memory, scratch=scratch)
    sources.point(token=each, position=0 * each, first=each, length=0 * each + 1, block=each)
    if team is not None:
        sources.team = ctypes.pointer(team)
    core.encode(stack, tokens, sources)
    assert (memory[len(rows)] == float("-inf")).all()  # nothing beyond the room of the last sentence
    keys, values = memory[: len(rows), :, 0, :, 0], memory[: len(rows), :, 1, 0]
    found = torch.cat([keys, values], dim=-1).flatten(1)
    beyond = found[:, len(weight) :]
    assert (beyond[rows.isfinite().all(dim=1)] == 0.0).all()
    return found[:, : len(weight)]


@contextmanager
def team_of(size):
    """Give a team whose other members are at work until the end."""
    team = STRUCTS["Team"]()
    helpers = [Thread(target=library().assist, args=(team,), daemon=True) for _ in range(1, size)]
    for helper in helpers:
        helper.start()
    yield team
    library().dismiss(team)
    for helper in helpers:
        helper.join(60.0)
        assert not helper.is_alive()


def draw(inputs, outputs, num_rows):
    """Return a matrix, a bias and rows; of both matrix and rows some are a thousand times the others."""
    rows = torch.randn(num_rows, inputs) * torch.logspace(-2, 1, num_rows)[torch.randperm(num_rows)][:, None]
    weight = torch.randn(outputs, inputs) * torch.logspace(-2, 1, outputs)[torch.randperm(outputs)][:, None]
    return weight, torch.randn(outputs) * 3.0, rows


def in_8_bits(rows):
    """Return whole numbers from -127 to 127, and what a step of each row is worth."""
    scale = rows.abs().amax(dim=1, keepdim=True) / 127
    return (rows * (1 / scale)).round().double(), scale.double()


def exact(rows, weight, precision):
    """Return in float64 what the product of the rounded numbers is."""
    if precision == "int8":
        (levels, row_scale), scale = in_8_bits(rows), weight.abs().amax(dim=1, keepdim=True) / 63
        return levels @ (weight / scale).round().double().t() * row_scale * scale.double().t()
    if precision == "fp32":
        return rows.double() @ weight.double().t()
    high, weight_high = rows.bfloat16().float(), weight.bfloat16().float()
    product = high.double() @ weight_high.double().t()
    if precision == "bf16x3":
        low, weight_low = (rows - high).bfloat16().double(), (weight - weight_high).bfloat16().double()
        product += high.double() @ weight_low.t() + low @ weight_high.double().t()
    return product


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(("precision", "on_amx"), FORMS)
def test_a_product_is_that_of_the_rounded_numbers_whatever_its_shape(precision, on_amx, has_bias):
    for inputs in (64, 128, 192) if precision == "int8" else (32, 64, 96):
        for outputs in (1, 31, 33, 64, 95):
            for num_rows in NUM_ROWS:
                weight, bias, rows = draw(inputs, outputs, num_rows)
                found = multiply(rows, weight, bias if has_bias else None, precision, on_amx)
                expected = exact(rows, weight, precision) + (bias if has_bias else 0.0)
                # Of a sum in float32 the last bits of the largest terms are lost.
                size = rows.double().abs() @ weight.double().abs().t() + (bias.abs() if has_bias else 0.0)
                assert ((found - expected).abs() / size).max() < 1e-6, (inputs, outputs, num_rows)


@pytest.mark.parametrize(
    ("precision", "bound"),
    [  # Measured: 5.6e-7, 2.6e-3, 5.3e-6 and 2.0e-2.
        pytest.param("fp32", 1e-6, marks=needs_core),
        pytest.param("bf16", 4e-3, marks=needs_core),
        pytest.param("bf16x3", 1e-5, marks=needs_core),
        pytest.param("int8", 3e-2, marks=needs_core),
    ],
)
def test_a_rounded_product_is_close_and_no_closer(precision, bound):
    weight, _, rows = draw(512, 96, 53)
    found = multiply(rows, weight, None, precision)
    size = rows.norm(dim=1)[:, None].double() * weight.norm(dim=1) / 512**0.5
    error = ((found - rows.double() @ weight.double().t()) / size).square().mean(dim=1).sqrt()
    assert bound / 10 < error.max() < bound


@pytest.mark.parametrize(("precision", "on_amx"), FORMS)
def test_a_row_is_the_same_to_the_last_bit_whatever_its_neighbours(precision, on_amx):
    weight, bias, rows = draw(64, 95, 70)
    alone = torch.cat([multiply(row[None], weight, bias, precision, on_amx) for row in rows])
    for num_rows in NUM_ROWS:
        assert multiply(rows[:num_rows], weight, bias, precision, on_amx).equal(alone[:num_rows])
        assert multiply(rows[-num_rows:], weight, bias, precision, on_amx).equal(alone[-num_rows:])


@needs_core
def test_only_a_search_keeps_paths_so_that_a_long_text_needs_no_square_of_its_length():
    layers = (STRUCTS["Layer"] * 1)()
    stack = STRUCTS["Stack"](d_model=64, num_heads=1, d_k=16, d_v=16, d_ff=32, num_layers=0, layers=layers)
    size = library().scratch_size
    assert size(stack, 100_000, 100_000, 1, False) < 101 * size(stack, 1_000, 1_000, 1, False)
    turned = 4 * 16 * 1_008  # keys of the longest sentence, which a search does not turn
    assert size(stack, 100, 1_000, 1, True) - size(stack, 100, 1_000, 1, False) + turned >= 4 * 100 * 1_000


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(("precision", "on_amx"), FORMS)
def test_a_team_gives_the_same_to_the_last_bit_however_many_panels_there_are(precision, on_amx, size):
    with team_of(size) as team:
        for inputs, outputs, num_rows in ((64, 1, 1), (64, 95, 70), (256, 1_000, 1), (448, 1_300, 37)):
            weight, bias, rows = draw(inputs, outputs, num_rows)
            alone = multiply(rows, weight, bias, precision, on_amx)
            for _ in range(7):
                assert multiply(rows, weight, bias, precision, on_amx, team).equal(alone)


@pytest.mark.parametrize(("precision", "on_amx"), FORMS)
def test_product_of_zeros_is_the_bias(precision, on_amx):
    weight, bias, rows = draw(64, 33, 19)
    rows[5], weight[7] = 0.0, 0.0
    found = multiply(rows, weight, bias, precision, on_amx)
    assert found[5].equal(bias)
    assert (found[:, 7] == bias[7]).all()


@pytest.mark.parametrize("place", [0, 47])
@pytest.mark.parametrize("damage", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(("precision", "on_amx"), FORMS)
def test_non_finite_input_shows_in_its_own_row_alone(precision, on_amx, damage, place):
    weight, bias, rows = draw(64, 33, 19)
    sound = multiply(rows, weight, bias, precision, on_amx)
    rows[5, place] = damage
    found = multiply(rows, weight, bias, precision, on_amx)
    assert not found[5].isfinite().any()
    others = [row for row in range(19) if row != 5]
    assert found[others].equal(sound[others])


@pytest.mark.parametrize(("precision", "on_amx"), FORMS)
def test_nan_weight_shows_in_its_own_output_alone(precision, on_amx):
    weight, bias, rows = draw(64, 33, 19)
    sound = multiply(rows, weight, bias, precision, on_amx)
    weight[7, 50] = float("nan")
    found = multiply(rows, weight, bias, precision, on_amx)
    assert found[:, 7].isnan().all()
    others = [output for output in range(33) if output != 7]
    assert found[:, others].equal(sound[:, others])


# The order of the weights


def panels_of(weight, precision, rows=None):
    """Return the bytes of a matrix in the order in which the core reads it, and the scales of its outputs in 8 bits."""
    product = make_product(weight, None, precision, rows=rows)
    size = library().packed_size(product.outputs, product.inputs, product.precision)
    panels = torch.frombuffer(bytearray(ctypes.string_at(product.panels, size)), dtype=torch.uint8) if size else None
    if precision != "int8":
        return panels, None
    return panels, torch.tensor((ctypes.c_float * product.outputs).from_address(product.scales.value or 0))


def block():
    """Return how many outputs the form in use multiplies together."""
    return 32 if form().startswith(("avx512", "amx")) else 16


@needs_core
def test_panels_in_float32_hold_the_outputs_of_an_input_side_by_side():
    weight, size = torch.randn(96, 7), block()
    flat = panels_of(weight, "fp32")[0].view(torch.float32)
    for output in range(96):
        for at in range(7):
            assert flat[(output // size * 7 + at) * size + output % size] == weight[output, at]


@needs_core
@pytest.mark.parametrize("precision", ["bf16", "bf16x3", "int8"])
def test_panels_of_tiles_hold_a_group_of_inputs_of_an_output_side_by_side(precision):
    weight, group = torch.randn(64, 128), 4 if precision == "int8" else 2
    weight[3, 5], weight[17] = 0.0, 1e-41
    panels, scales = panels_of(weight, precision)
    terms = [weight.bfloat16()]
    if precision == "bf16x3":
        terms.append((weight - weight.bfloat16().float()).bfloat16())
    if precision == "int8":
        expected = (weight.abs().amax(dim=1) / 63).clamp_min(torch.finfo(torch.float32).tiny)
        assert scales.equal(expected)
        offset = 64 if form() != "amx" and platform.machine() == "x86_64" else 0
        terms = [(weight / scales[:, None]).round().to(torch.int8) + offset]
    flat = iter(panels.view(terms[0].dtype).tolist())
    rows = [term.tolist() for term in terms]
    size = block()
    for first in range(0, 64, size):
        for inputs in range(0, 128, 16 * group):
            for term in rows:
                for tile in range(first, first + size, 16):
                    for line in range(16):
                        for output in range(16):
                            for at in range(group):
                                assert next(flat) == term[tile + output][inputs + line * group + at]
    assert next(flat, None) is None


@needs_core
@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16x3", "int8"])
@pytest.mark.parametrize("count", [1, 31, 32, 33, 70])
def test_panels_of_some_rows_are_those_of_a_matrix_of_them_filled_up_with_zeros(count, precision):
    matrix, rows = torch.randn(101, 64), torch.randint(101, (count,), dtype=torch.int32)
    padded = torch.zeros(-(-count // PANEL) * PANEL, 64)
    padded[:count] = matrix[rows]
    found_ones = panels_of(matrix, precision, rows.numpy())
    for found, expected in zip(found_ones, panels_of(padded, precision), strict=True):
        assert found is expected is None or found.equal(expected)


@needs_core
def test_a_product_of_no_rows_has_no_outputs():
    assert make_product(torch.randn(3, 64), None, "fp32", rows=np.empty(0, dtype=np.int32)).outputs == 0


def test_a_structure_points_to_nothing_of_another_type_or_order():
    tokens = STRUCTS["Tokens"]()
    with pytest.raises(TypeError, match=r"Tokens.embedding cannot point to float64"):
        tokens.point(embedding=torch.zeros(3, 4, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"Tokens.ids cannot point to int64"):
        tokens.point(ids=torch.arange(3))
    with pytest.raises(TypeError, match=r"Tokens.embedding cannot point to float32 of strides"):
        tokens.point(embedding=torch.zeros(3, 4).t())


# The mirror, and whether there is a core


def test_read_structures_reads_untagged_structures_of_a_header():
    inner, outer = read_structures(
        """
        typedef struct { const float *weight, *bias; double eps; } Inner; /* typedef struct { int x; } Comment; */
        typedef struct Tagged { float *x; } Tagged;
        typedef struct {
            _Atomic int64_t state; /* of it; */
            int64_t rows, first;
            const int32_t *ids;
            Inner norm, other;
            const Inner *norms;
            const struct Tagged *tagged;
            Inner **each;
            const void *panels;
            float scale;
        } Outer;
        """
    ).values()
    assert (inner.__name__, outer.__name__) == ("Inner", "Outer")
    assert inner._fields_ == [("weight", ADDRESSES["float"]), ("bias", ADDRESSES["float"]), ("eps", ctypes.c_double)]
    assert outer._fields_ == [
        ("state", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("first", ctypes.c_int64),
        ("ids", ADDRESSES["int32_t"]),
        ("norm", inner),
        ("other", inner),
        ("norms", ctypes.POINTER(inner)),
        ("tagged", ctypes.c_void_p),
        ("each", ctypes.POINTER(ctypes.POINTER(inner))),
        ("panels", ctypes.c_void_p),
        ("scale", ctypes.c_float),
    ]


def test_constants_are_read_from_the_c_header():
    found = read_constants(
        """
        #define WIDE 16        /* floats in a register */
        #define LOGITS (WIDE + 4)
        #define SECONDS 1e-3
        enum Kind { ONE = 1, TWO = 2, EIGHT = 8 };
        enum State { NOTHING, SOMETHING };
        static void use(enum State state) { int x = 3; }
        """
    )
    assert found == {"WIDE": 16, "ONE": 1, "TWO": 2, "EIGHT": 8, "NOTHING": 0, "SOMETHING": 1}
    assert (CONSTANTS["PANEL"], CONSTANTS["INT8"], CONSTANTS["GELU_TANH"], CONSTANTS["TO_LEAVE"]) == (32, 8, 2, 2)


def test_a_structure_keeps_what_its_fields_lead_to_and_no_more():
    tokens = STRUCTS["Tokens"]()
    first, second = np.zeros(3, dtype=np.float32), np.ones(3, dtype=np.float32)
    before = [sys.getrefcount(first), sys.getrefcount(second)]
    tokens.point(embedding=first).point(embedding=second)
    assert [sys.getrefcount(first), sys.getrefcount(second)] == [before[0], before[1] + 1]
    norm = STRUCTS["Norm"](eps=0.5).point(weight=first)
    tokens.embedding_norm = norm
    del norm
    assert sys.getrefcount(first) == before[0] + 1
    assert tokens.embedding_norm.eps == 0.5


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_structures_lie_in_memory_as_the_compiler_lays_them_out(tmp_path):
    csrc = Path(library_module.__file__).with_name("csrc")
    fields = [(kind, name) for kind, struct in STRUCTS.items() for name, *_ in struct._fields_]
    lines = [f'P("%zu\\n", sizeof({kind}));' for kind in STRUCTS]
    lines += [f'P("%zu %zu\\n", offsetof({kind}, {name}), sizeof((({kind} *)0)->{name}));' for kind, name in fields]
    program, body = tmp_path / "layout.c", "".join(lines)
    program.write_text(f'#include "types.h"\n#include <stdio.h>\n#define P printf\nint main(void) {{{body}}}')
    options = ["-mavx512f", "-Wno-unused-function", f"-I{csrc}"]
    subprocess.run(["cc", *options, str(program), "-o", str(tmp_path / "layout")], check=True)
    printed = subprocess.run([str(tmp_path / "layout")], check=True, capture_output=True, text=True).stdout.split("\n")
    places = [(getattr(STRUCTS[kind], name).offset, getattr(STRUCTS[kind], name).size) for kind, name in fields]
    expected = [str(ctypes.sizeof(struct)) for struct in STRUCTS.values()] + [f"{at} {size}" for at, size in places]
    assert printed == [*expected, ""]


def test_library_is_none_if_the_core_was_not_compiled(monkeypatch, forget_the_library, tmp_path):
    monkeypatch.setattr(library_module, "_record", lambda: tmp_path / "_core.sha256")
    assert library() is None
    assert not has_amx()
    assert describe() == (
        "clearhead's compiled core is not in use: this installation was built for no particular platform, or without a "
        "C compiler"
    )


# A core that cannot be used

ADVICE = re.escape(f"install clearhead again: {pip_install(options='--force-reinstall --no-deps')}")


@pytest.fixture
def put_core(monkeypatch, forget_the_library, tmp_path):
    """Return a function that puts a file where the core is sought, with a checksum: its own if none is given."""

    def put(content, record=None):
        place = tmp_path / f"place{len(list(tmp_path.iterdir()))}"  # the same path would not be loaded again
        place.mkdir()
        if content is not None:
            place.joinpath("_core.so").write_bytes(content)
            record = record or f"{sha256(content).hexdigest()}  _core.so\n".encode()
        place.joinpath("_core.sha256").write_bytes(record)
        monkeypatch.setattr(library_module, "_record", lambda: place / "_core.sha256")
        for function in (library, library_module._load, form):
            function.cache_clear()

    return put


def the_core():
    """Return the content of the core that was built, and of its checksum."""
    record = library_module._record()
    return record.with_name(record.read_text().split()[1]).read_bytes(), record.read_bytes()


def assert_refused(reason):
    """See that the core is not in use, which is said once, and always when asked."""
    with pytest.warns(CompiledCoreWarning) as said:
        assert [library(), library()] == [None, None]
    assert len(said) == 1
    assert re.fullmatch(f"the compiled core is not in use: .*{reason}.*{ADVICE}", describe())
    assert str(said[0].message) == f"{describe()}; until then PyTorch does its work, more slowly"


def test_the_core_that_was_built_is_found():
    built = {path.suffix for path in Path(library_module.__file__).parent.glob("_core.*")}
    assert len(built) == (0 if library() is None else 2)


@needs_core
@pytest.mark.parametrize("share", [0.0, 0.0001, 0.1, 0.5, 0.99999])
def test_a_core_that_was_cut_short_is_not_loaded(put_core, share):
    content, record = the_core()
    put_core(content[: int(len(content) * share)], record)
    assert_refused(r"_core.so is damaged \(its SHA-256 is not the one in _core.sha256\)")


def test_make_engine_raises_without_pytorch_and_a_usable_core(put_core, monkeypatch, make_model_dir):
    model = load_bundle(make_model_dir()).weights
    put_core(None, b"one")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert library() is None
    for name in [name for name in sys.modules if name.startswith("clearhead.decoding.pytorch")]:
        monkeypatch.delitem(sys.modules, name)
    reason = re.escape(describe())
    with pytest.raises(ClearheadError, match=rf"^this model \({reason}\) needs PyTorch, which is not installed: pip"):
        make_engine(model)


@pytest.mark.parametrize("value", ["\udcff", "\x1b[31m"])
@needs_core
def test_a_form_whose_name_is_not_utf8_is_unknown(monkeypatch, forget_the_library, value):
    monkeypatch.setenv(library_module.ISA_VARIABLE, value)
    with pytest.raises(DeviceError, match="the compiled core has no such form"):
        form()


@needs_core
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9999])
def test_a_core_of_which_a_bit_changed_is_not_loaded(put_core, share):
    content, record = the_core()
    changed = bytearray(content)
    changed[int(len(changed) * share)] ^= 1
    put_core(changed, record)
    assert_refused(r"_core.so is damaged \(its SHA-256 is not the one in _core.sha256\)")


@pytest.mark.parametrize("record", [b"", b"one", b"one two three", b"\xff\xfe x", b"00" * 32 + b"  _core.so"])
def test_a_core_without_a_whole_checksum_or_without_the_file_is_not_loaded(put_core, record):
    put_core(None, record)
    assert_refused("is damaged")


@pytest.mark.parametrize(
    "content",
    [
        b"no library at all, but long enough to be looked at as one: " * 20,
        b"\x7fELF\x02\x01" + b"\0" * 1_000,
        b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x03\0\xb7\0" + b"\0" * 1_000,
        b"\xcf\xfa\xed\xfe\x0c\0\0\x01" + b"\0" * 1_000,
        b"MZ" + b"\0" * 1_000,
    ],
    ids=["text", "ELF", "ELF for ARM", "Mach-O", "PE"],
)
def test_a_library_for_another_processor_or_system_is_not_loaded(put_core, content):
    put_core(content)
    assert_refused("was built for another processor or system")


def test_a_core_without_a_function_is_of_another_version(put_core):
    put_core(Path(np.random.mtrand.__file__).read_bytes())
    assert_refused("was built from the sources of another version")


@needs_core
@pytest.mark.parametrize("name", ["core.c", "types.h", "packing.h", "search.h"])
def test_a_core_that_was_built_from_other_sources_is_not_loaded(put_core, monkeypatch, tmp_path, name):
    copy = shutil.copytree(Path(library_module.__file__).parent, tmp_path / "kernels")
    core, _ = the_core()
    monkeypatch.setattr(library_module, "__file__", str(copy / "library.py"))
    (copy / "csrc" / "left_behind.h").write_text("of an earlier version")
    (copy / "csrc" / ".#core.c").symlink_to("an editor's lock")
    put_core(core)
    assert library() is not None
    with (copy / "csrc" / name).open("a") as file:
        file.write("/* changed */")
    put_core(core)
    assert_refused("was built from the sources of another version")


@needs_core
def test_valid_core_is_loaded_without_a_warning(put_core):
    put_core(the_core()[0])
    assert library() is not None
    assert describe() == f"clearhead's compiled core is in use, in its form for {form()}"
