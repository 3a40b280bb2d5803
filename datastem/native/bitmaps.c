/* Many sets of 16-bit numbers as portable roaring bytes; the format is that of results/bitmaps.py. */

#include "core.h"

/* pyarrow asks for SSE 4.2, and every processor with that counts bits in one instruction. */
#ifdef __x86_64__
#pragma GCC target("popcnt")
#endif

#define BLOCK_ROWS 65536
#define BLOCK_BYTES (BLOCK_ROWS / 8)
#define BLOCK_WORDS (BLOCK_ROWS / 64)
#define MAX_ARRAY_COUNT 4096
/* Bytes before an array or bits, and before runs. */
#define HEAD_BYTES 16
#define RUN_HEAD_BYTES 11

/* How a set is written: as runs if `runs` is not 0, else as an array or, if it is large, as bits. */
typedef struct {
    uint32_t count, runs;
} Container;

static Container
smallest(uint32_t count, uint32_t runs)
{
    uint32_t otherwise = count <= MAX_ARRAY_COUNT ? 2 * count : BLOCK_BYTES;
    return (Container){count, 4 * runs + 2 < otherwise ? runs : 0};
}

static Py_ssize_t
bytes_of(Container container)
{
    if (container.runs)
        return RUN_HEAD_BYTES + 4 * container.runs;
    return HEAD_BYTES + (container.count <= MAX_ARRAY_COUNT ? 2 * container.count : BLOCK_BYTES);
}

static void
put16(uint8_t *at, uint32_t value)
{
    at[0] = value & 255;
    at[1] = value >> 8;
}

static uint8_t *
put_run(uint8_t *at, uint32_t first, uint32_t last)
{
    put16(at, first);
    put16(at + 2, last - first);
    return at + 4;
}

/* Write cookie, key 0 and count - 1, and then the number of runs or the place of the content. */
static uint8_t *
put_head(uint8_t *at, Container container)
{
    if (container.runs) {
        memcpy(at, "\x3b\x30\0\0\1\0\0", 7);
        put16(at + 7, container.count - 1);
        put16(at + 9, container.runs);
        return at + RUN_HEAD_BYTES;
    }
    memcpy(at, "\x3a\x30\0\0\1\0\0\0\0\0\0\0\x10\0\0", HEAD_BYTES);
    put16(at + 10, container.count - 1);
    return at + HEAD_BYTES;
}

/* ---- a list of members */

/* Return the number of runs; 0 if members do not ascend. */
static uint32_t
list_runs(const uint16_t *members, uint32_t count)
{
    uint32_t runs = 1, is_ascending = 1;
    for (uint32_t i = 1; i < count; i++) {
        runs += members[i] != members[i - 1] + 1;
        is_ascending &= members[i] > members[i - 1];
    }
    return is_ascending ? runs : 0;
}

static void
put_list(uint8_t *at, Container container, const uint16_t *members)
{
    uint32_t count = container.count;
    if (container.runs) {
        for (uint32_t i = 0, first = 0; i < count; i++)
            if (i + 1 == count || members[i + 1] != members[i] + 1) {
                at = put_run(at, members[first], members[i]);
                first = i + 1;
            }
    } else if (count <= MAX_ARRAY_COUNT) {
        memcpy(at, members, 2 * count);
    } else {
        memset(at, 0, BLOCK_BYTES);
        for (uint32_t i = 0; i < count; i++)
            at[members[i] >> 3] |= 1 << (members[i] & 7);
    }
}

/* ---- a line of bits */

static Container
line_container(const uint64_t *words, Py_ssize_t width)
{
    uint64_t previous = 0;
    uint32_t count = 0, runs = 0;
    for (Py_ssize_t i = 0; i < width; i++) {
        count += __builtin_popcountll(words[i]);
        /* A run begins with a bit that has none before it. */
        runs += __builtin_popcountll(words[i] & ~(words[i] << 1 | previous >> 63));
        previous = words[i];
    }
    return smallest(count, runs);
}

/* Write the numbers of a word's bits, and up to PUT_AHEAD others after them: fewer branches are
mispredicted if numbers are written some at a time, also for words without bits. */
#define PUT_AHEAD 2
static uint8_t *
put_bits(uint8_t *at, uint64_t bits, uint32_t base)
{
    uint8_t *end = at + 2 * __builtin_popcountll(bits);
    do
        for (int i = 0; i < PUT_AHEAD; i++, bits &= bits - 1, at += 2)
            put16(at, base + __builtin_ctzll(bits | (uint64_t)1 << 63));
    while (at < end);
    return end;
}

static void
put_line_runs(uint8_t *at, const uint64_t *words, Py_ssize_t width, uint32_t base)
{
    uint64_t previous = 0;
    uint32_t first = 0;
    for (Py_ssize_t i = 0; i < width; i++, base += 64) {
        /* The bits that differ from the one before them: first of a run, or first after it. */
        uint64_t edges = words[i] ^ (words[i] << 1 | previous >> 63);
        for (; edges; edges &= edges - 1) {
            uint32_t bit = __builtin_ctzll(edges);
            if (words[i] >> bit & 1)
                first = base + bit;
            else
                at = put_run(at, first, base + bit - 1);
        }
        previous = words[i];
    }
    if (previous >> 63)
        put_run(at, first, base - 1);
}

static void
put_line(uint8_t *at, Container container, const uint64_t *words, Py_ssize_t width, uint32_t base)
{
    if (container.runs) {
        put_line_runs(at, words, width, base);
    } else if (container.count > MAX_ARRAY_COUNT) {
        memset(at, 0, BLOCK_BYTES);
        memcpy(at + base / 8, words, 8 * width);
    } else
        for (Py_ssize_t i = 0; i < width; i++, base += 64)
            at = put_bits(at, words[i], base);
}

/* ---- many sets */

/* Sets as lists, one after another (`members` is not NULL), or as some lines of a matrix of bits. */
typedef struct {
    Py_ssize_t count;
    const int64_t *counts, *lines;
    const uint16_t *members;
    Py_ssize_t member_count;
    const uint64_t *words;
    Py_ssize_t line_count, width, first;
} Sets;

/* Choose the container of each set, and add up their bytes. Return what contradicts, or NULL. */
static const char *
measure_sets(const Sets *sets, Container *containers, Py_ssize_t *bytes)
{
    Py_ssize_t begin = 0;
    for (Py_ssize_t i = 0; i < sets->count; i++) {
        if (sets->members) {
            int64_t count = sets->counts[i];
            if (count < 1 || count > sets->member_count - begin)
                return "counts do not add up to the members";
            uint32_t runs = count > BLOCK_ROWS ? 0 : list_runs(sets->members + begin, count);
            if (runs == 0)
                return "members do not ascend";
            containers[i] = smallest(count, runs);
            begin += count;
        } else {
            if (sets->lines[i] < 0 || sets->lines[i] >= sets->line_count)
                return "a line is not in the matrix";
            containers[i] = line_container(sets->words + sets->lines[i] * sets->width, sets->width);
            if (containers[i].count == 0)
                return "a line has no bits";
        }
        *bytes += bytes_of(containers[i]);
    }
    return begin == sets->member_count ? NULL : "counts do not add up to the members";
}

static void
put_sets(const Sets *sets, const Container *containers, int32_t *offsets, uint8_t *content)
{
    const uint16_t *members = sets->members;
    offsets[0] = 0;
    for (Py_ssize_t i = 0; i < sets->count; i++) {
        uint8_t *at = put_head(content + offsets[i], containers[i]);
        offsets[i + 1] = offsets[i] + bytes_of(containers[i]);
        if (members) {
            put_list(at, containers[i], members);
            members += containers[i].count;
        } else {
            const uint64_t *words = sets->words + sets->lines[i] * sets->width;
            put_line(at, containers[i], words, sets->width, 64 * sets->first);
        }
    }
}

static PyObject *
encode_measured(const Sets *sets, const Container *containers, Py_ssize_t bytes, Py_ssize_t work)
{
    if (bytes > MAX_BYTES)
        return PyErr_Format(PyExc_OverflowError, "%zd bitmaps of %zd bytes are too many at once",
                            sets->count, bytes);
    PyObject *offsets = NEW_BYTES(4 * (sets->count + 1)), *content = NEW_BYTES(bytes + 2 * PUT_AHEAD);
    PyObject *result = Py_BuildValue("NN", offsets, content);
    if (result == NULL)
        return NULL;
    int32_t *places = BYTES_OF(int32_t, offsets);
    uint8_t *octets = BYTES_OF(uint8_t, content);
    RELEASE_GIL(work);
    put_sets(sets, containers, places, octets);
    TAKE_GIL();
    if (PyByteArray_Resize(content, bytes) < 0)
        Py_CLEAR(result);
    return result;
}

static PyObject *
encode_sets(const Sets *sets, Py_ssize_t work)
{
    Container *containers = PyMem_Malloc((sets->count + 1) * sizeof *containers);
    if (containers == NULL)
        return PyErr_NoMemory();
    Py_ssize_t bytes = 0;
    RELEASE_GIL(work);
    const char *contradiction = measure_sets(sets, containers, &bytes);
    TAKE_GIL();
    PyObject *result = NULL;
    if (contradiction)
        PyErr_SetString(PyExc_ValueError, contradiction);
    else
        result = encode_measured(sets, containers, bytes, work);
    PyMem_Free(containers);
    return result;
}

PyObject *
encode_lists(PyObject *module, PyObject *args)
{
    Py_buffer counts, members;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*:encode_lists", &counts, &members))
        return NULL;
    if (counts.len % 8 || members.len % 2)
        PyErr_SetString(PyExc_ValueError, "counts have 8 bytes each, members 2");
    else {
        Sets sets = {.count = counts.len / 8, .counts = counts.buf};
        sets.members = members.buf, sets.member_count = members.len / 2;
        result = encode_sets(&sets, counts.len + members.len);
    }
    PyBuffer_Release(&counts);
    PyBuffer_Release(&members);
    return result;
}

PyObject *
encode_lines(PyObject *module, PyObject *args)
{
    Py_buffer words, lines;
    Py_ssize_t width, first;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*ny*n:encode_lines", &words, &width, &lines, &first))
        return NULL;
    if (width < 1 || width > BLOCK_WORDS || first < 0 || first > BLOCK_WORDS - width
        || words.len % (8 * width) || lines.len % 8)
        PyErr_Format(PyExc_ValueError, "%zd bytes are no lines of %zd words from word %zd on",
                     words.len, width, first);
    else {
        Sets sets = {.count = lines.len / 8, .lines = lines.buf, .words = words.buf};
        sets.line_count = words.len / (8 * width), sets.width = width, sets.first = first;
        result = encode_sets(&sets, sets.count * 8 * width);
    }
    PyBuffer_Release(&words);
    PyBuffer_Release(&lines);
    return result;
}
