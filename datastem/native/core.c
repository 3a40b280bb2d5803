/* The module `datastem.native._core`. */

#include "core.h"

static PyMethodDef methods[] = {
    {"group", group, METH_VARARGS,
     "group(numbers, rows) -> (numbers, counts, rows)\n\n"
     "Return the distinct int32 numbers, ascending, and how many rows each has, both as int64; and\n"
     "the int32 rows of each number, in the order they have here."},
    {"encode_lists", encode_lists, METH_VARARGS,
     "encode_lists(counts, members) -> (offsets, content)\n\n"
     "Return the roaring bytes of sets. Set n has the next counts[n] (int64) members (uint16), which\n"
     "ascend; its bytes begin at offsets[n] (int32) of the content."},
    {"encode_lines", encode_lines, METH_VARARGS,
     "encode_lines(words, width, lines, first) -> (offsets, content)\n\n"
     "Return the roaring bytes of the sets in some lines (int64) of a matrix of `width` words\n"
     "(uint64) a line, whose first column is word `first` of a block."},
    {"encode_fields", encode_fields, METH_VARARGS,
     "encode_fields(fields, rows) -> (content, start, offsets)\n\n"
     "Return the bytes of rows of protobuf fields, one row after another from `start` of the content\n"
     "on; row n begins offsets[n] (int32) bytes later. `fields` is a tuple of tuples (kind, tag,\n"
     "inside or scale, values, content, present); a message follows the fields inside it."},
    {"search_runs", search_runs, METH_VARARGS,
     "search_runs(bounds, begins, ends, keys) -> ends\n\n"
     "Return, for key n (int64), where the bounds (int64) end that are not above it, among those from\n"
     "begins[n] to ends[n] (int32), which ascend."},
    {"find_codes", find_codes, METH_VARARGS,
     "find_codes(codes, buckets, shift, wanted) -> places\n\n"
     "Return the place (int32) of each wanted code (uint64) among the ascending codes, or -1. Those\n"
     "with code >> shift == b are at the places from buckets[b] to buckets[b + 1] (int32)."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_core",
    .m_doc = "Loops over buffers.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
