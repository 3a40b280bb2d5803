/* Many keys, each looked for in a short run of its own. */

#include "core.h"

/* Return how many of the ascending bounds are not above the key. */
static Py_ssize_t
count_admitting(const int64_t *bounds, Py_ssize_t count, int64_t key)
{
    const int64_t *first = bounds;
    while (count > 0) {
        Py_ssize_t half = count / 2;
        /* Written so that compilers make no branch of it, which would be mispredicted. */
        int above = first[half] <= key;
        first = above ? first + half + 1 : first;
        count = above ? count - half - 1 : half;
    }
    return first - bounds;
}

PyObject *
search_runs(PyObject *module, PyObject *args)
{
    Py_buffer bounds, begins, ends, keys;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*y*y*:search_runs", &bounds, &begins, &ends, &keys))
        return NULL;
    const int64_t *bound = bounds.buf, *key = keys.buf;
    const int32_t *begin = begins.buf, *end = ends.buf;
    Py_ssize_t count = keys.len / 8, total = bounds.len / 8, i = 0;
    if (bounds.len % 8 || keys.len % 8 || begins.len != 4 * count || ends.len != 4 * count)
        PyErr_Format(PyExc_ValueError, "%zd bytes of begins for %zd of keys", begins.len, keys.len);
    else if ((result = NEW_BYTES(4 * count)) != NULL) {
        int32_t *out = BYTES_OF(int32_t, result);
        RELEASE_GIL(16 * count);
        for (; i < count && 0 <= begin[i] && begin[i] <= end[i] && end[i] <= total; i++)
            out[i] = begin[i] + (int32_t)count_admitting(bound + begin[i], end[i] - begin[i], key[i]);
        TAKE_GIL();
        if (i < count) {
            Py_CLEAR(result);
            PyErr_Format(PyExc_ValueError, "run %zd is not among the %zd bounds", i, total);
        }
    }
    PyBuffer_Release(&bounds);
    PyBuffer_Release(&begins);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&keys);
    return result;
}

PyObject *
find_codes(PyObject *module, PyObject *args)
{
    Py_buffer codes, buckets, wanted;
    int shift;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*iy*:find_codes", &codes, &buckets, &shift, &wanted))
        return NULL;
    const uint64_t *code = codes.buf, *want = wanted.buf;
    const int32_t *bucket = buckets.buf;
    Py_ssize_t count = wanted.len / 8, total = codes.len / 8, i = 0;
    if (codes.len % 8 || wanted.len % 8 || shift < 32 || shift > 63 ||
        buckets.len != 4 * (((Py_ssize_t)1 << (64 - shift)) + 1))
        PyErr_Format(PyExc_ValueError, "%zd bytes of buckets by %d bits", buckets.len, 64 - shift);
    else if ((result = NEW_BYTES(4 * count)) != NULL) {
        int32_t *out = BYTES_OF(int32_t, result);
        RELEASE_GIL(8 * count);
        for (; i < count; i++) {
            Py_ssize_t place = bucket[want[i] >> shift], end = bucket[(want[i] >> shift) + 1];
            if (place < 0 || end > total)
                break;
            while (place < end && code[place] != want[i])
                place++;
            out[i] = place < end ? (int32_t)place : -1;
        }
        TAKE_GIL();
        if (i < count) {
            Py_CLEAR(result);
            PyErr_Format(PyExc_ValueError, "a bucket is not among the %zd codes", total);
        }
    }
    PyBuffer_Release(&codes);
    PyBuffer_Release(&buckets);
    PyBuffer_Release(&wanted);
    return result;
}
