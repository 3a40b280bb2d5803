/* Pairs of a number and a row, brought from the order of rows into that of numbers. */

#include "core.h"

/* A digit of numbers that are sorted digit by digit. */
#define MAX_DIGIT_BITS 11
#define MAX_PASSES 3

/* Allocate the (numbers, counts, rows) that are returned, and set pointers to them. */
static PyObject *
new_groups(Py_ssize_t groups, Py_ssize_t count, int64_t **numbers, int64_t **counts, uint32_t **rows)
{
    PyObject *first = NEW_BYTES(8 * groups), *second = NEW_BYTES(8 * groups);
    PyObject *third = NEW_BYTES(4 * count), *result = Py_BuildValue("NNN", first, second, third);
    if (result != NULL) {
        *numbers = BYTES_OF(int64_t, first);
        *counts = BYTES_OF(int64_t, second);
        *rows = BYTES_OF(uint32_t, third);
    }
    return result;
}

/* ---- many pairs of few numbers: a counter for each number */

static PyObject *
count_pairs(const uint32_t *numbers, const uint32_t *rows, Py_ssize_t count, Py_ssize_t most)
{
    /* How many pairs each number has, then where its next row goes. */
    uint32_t *places = PyMem_Calloc(most + 1, sizeof *places), *out_rows;
    int64_t *out_numbers, *out_counts;
    Py_ssize_t groups = 0;
    if (places == NULL)
        return PyErr_NoMemory();
    {
        RELEASE_GIL(8 * count);
        for (Py_ssize_t i = 0; i < count; i++)
            places[numbers[i]]++;
        for (Py_ssize_t number = 0; number <= most; number++)
            groups += places[number] != 0;
        TAKE_GIL();
    }
    PyObject *result = new_groups(groups, count, &out_numbers, &out_counts, &out_rows);
    if (result != NULL) {
        RELEASE_GIL(8 * count);
        uint32_t before = 0, size;
        for (Py_ssize_t number = 0; number <= most; number++, before += size)
            if ((size = places[number]) != 0) {
                *out_numbers++ = number;
                *out_counts++ = size;
                places[number] = before;
            }
        for (Py_ssize_t i = 0; i < count; i++)
            out_rows[places[numbers[i]]++] = rows[i];
        TAKE_GIL();
    }
    PyMem_Free(places);
    return result;
}

/* ---- few pairs of many numbers: digit by digit */

/* Sort pairs, a digit at a time from the lowest on, so that the rows of a number keep their order. A
pair has its number in the high 32 bits. `memory` has space for twice as many pairs. Return where in
it the sorted ones begin. */
static uint64_t *
sort_pairs(const uint32_t *numbers, const uint32_t *rows, Py_ssize_t count, uint32_t most,
           uint64_t *memory)
{
    /* How many pairs have each digit, then where the next pair with that digit goes. */
    uint32_t places[MAX_PASSES][1 << MAX_DIGIT_BITS];
    int bits = most ? 32 - __builtin_clz(most) : 0;
    int passes = (bits + MAX_DIGIT_BITS - 1) / MAX_DIGIT_BITS;
    int digit_bits = passes ? (bits + passes - 1) / passes : 0;
    uint32_t mask = ((uint32_t)1 << digit_bits) - 1;
    uint64_t *pairs = memory, *other = memory + count;
    for (int pass = 0; pass < passes; pass++)
        memset(places[pass], 0, ((size_t)mask + 1) * sizeof(uint32_t));
    for (Py_ssize_t i = 0; i < count; i++) {
        pairs[i] = (uint64_t)numbers[i] << 32 | rows[i];
        for (int pass = 0; pass < passes; pass++)
            places[pass][numbers[i] >> pass * digit_bits & mask]++;
    }
    for (int pass = 0; pass < passes; pass++) {
        int shift = 32 + pass * digit_bits;
        uint32_t before = 0, size;
        for (uint32_t digit = 0; digit <= mask; digit++, before += size) {
            size = places[pass][digit];
            places[pass][digit] = before;
        }
        for (Py_ssize_t i = 0; i < count; i++)
            other[places[pass][pairs[i] >> shift & mask]++] = pairs[i];
        uint64_t *sorted = other;
        other = pairs, pairs = sorted;
    }
    return pairs;
}

static PyObject *
group_by_digits(const uint32_t *numbers, const uint32_t *rows, Py_ssize_t count, uint32_t most)
{
    uint64_t *memory = PyMem_Malloc((2 * count + 1) * sizeof *memory);
    uint32_t *out_rows;
    int64_t *out_numbers, *out_counts;
    Py_ssize_t groups = 0;
    if (memory == NULL)
        return PyErr_NoMemory();
    RELEASE_GIL(8 * count);
    const uint64_t *pairs = sort_pairs(numbers, rows, count, most, memory);
    for (Py_ssize_t i = 0; i < count; i++)
        groups += i == 0 || pairs[i] >> 32 != pairs[i - 1] >> 32;
    TAKE_GIL();
    PyObject *result = new_groups(groups, count, &out_numbers, &out_counts, &out_rows);
    if (result != NULL) {
        /* Number and end are written again for every pair, so that no branch is mispredicted. */
        for (Py_ssize_t i = 0, place = -1; i < count; i++) {
            place += i == 0 || pairs[i] >> 32 != pairs[i - 1] >> 32;
            out_numbers[place] = pairs[i] >> 32;
            out_counts[place] = i + 1;
            out_rows[i] = (uint32_t)pairs[i];
        }
        for (Py_ssize_t place = groups - 1; place > 0; place--)
            out_counts[place] -= out_counts[place - 1];
    }
    PyMem_Free(memory);
    return result;
}

PyObject *
group(PyObject *module, PyObject *args)
{
    Py_buffer numbers, rows;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*:group", &numbers, &rows))
        return NULL;
    Py_ssize_t count = numbers.len / 4;
    const uint32_t *number = numbers.buf;
    uint32_t most = 0;
    if (numbers.len != rows.len || numbers.len % 4 || count > INT32_MAX)
        PyErr_Format(PyExc_ValueError, "%zd bytes of numbers and %zd of rows", numbers.len, rows.len);
    else {
        for (Py_ssize_t i = 0; i < count; i++)
            most = number[i] > most ? number[i] : most;
        if (most > INT32_MAX)
            PyErr_SetString(PyExc_ValueError, "a number is negative");
        else if (most < count)
            result = count_pairs(number, rows.buf, count, most);
        else
            result = group_by_digits(number, rows.buf, count, most);
    }
    PyBuffer_Release(&numbers);
    PyBuffer_Release(&rows);
    return result;
}
