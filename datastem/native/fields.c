/* Rows of fields as the bytes that protobuf would write. */

#include "core.h"

/* The kinds of fields; datastem/native/__init__.py has the same numbers. */
enum { MESSAGE, VARINT, FIXED64, BYTES, DECIMAL, KINDS };

static const Py_ssize_t ITEM_BYTES[KINDS] = {0, 8, 8, 4, 16};
/* The most bytes of a row besides the content of BYTES: tag, length, number or digits. */
static const Py_ssize_t MAX_ROW_BYTES[KINDS] = {1 + 5, 1 + 10, 1 + 8, 1 + 5, 1 + 1 + 42};
#define MAX_FIELDS 65536
#define MAX_DEPTH 8
#define MAX_SCALE 38

/* A field of every row. A message follows the fields inside it, and `inside` counts all of them. */
typedef struct {
    int kind, tag;
    Py_ssize_t inside; /* the scale of a decimal */
    Py_buffer values, content, present;
} Field;

/* ---- values, each written before what follows it */

static uint8_t *
put_varint(uint8_t *end, uint64_t value)
{
    uint8_t *begin = end - 1;
    for (uint64_t remaining = value >> 7; remaining; remaining >>= 7)
        begin--;
    for (uint8_t *at = begin; at < end; at++, value >>= 7)
        *at = (value & 127) | (value > 127 ? 128 : 0);
    return begin;
}

/* Write all digits of the scale, and at least one before the point. */
static uint8_t *
put_decimal(uint8_t *at, const uint8_t *source, Py_ssize_t scale)
{
    unsigned __int128 value;
    memcpy(&value, source, sizeof value);
    int is_negative = source[15] >> 7;
    if (is_negative)
        value = -value;
    for (Py_ssize_t digits = 0; digits <= scale || value; digits++) {
        if (digits == scale && scale)
            *--at = '.';
        if (value >> 64) {
            *--at = '0' + (int)(value % 10);
            value /= 10;
        } else {
            uint64_t low = (uint64_t)value;
            *--at = '0' + low % 10;
            value = low / 10;
        }
    }
    if (is_negative)
        *--at = '-';
    return at;
}

/* ---- rows */

/* Write the fields of a row from the last to the first: the length of a message is known when it is
needed. Return where they begin. */
static uint8_t *
put_fields(const Field *begin, const Field *end, Py_ssize_t row, uint8_t *at)
{
    while (end > begin) {
        const Field *field = --end;
        const uint8_t *present = field->present.buf, *values = field->values.buf, *tail = at;
        if (field->kind == MESSAGE)
            end -= field->inside;
        if (present && !present[row])
            continue;
        switch (field->kind) {
        case MESSAGE:
            at = put_fields(end, field, row, at);
            break;
        case VARINT:
            at = put_varint(at, ((const uint64_t *)values)[row]);
            break;
        case FIXED64:
            memcpy(at -= 8, values + 8 * row, 8);
            break;
        case BYTES: {
            const int32_t *places = (const int32_t *)values + row;
            at -= places[1] - places[0];
            if (tail > at) /* there may be no content */
                memcpy(at, (const uint8_t *)field->content.buf + places[0], tail - at);
            break;
        }
        case DECIMAL:
            at = put_decimal(at, values + 16 * row, field->inside);
        }
        if (field->kind != VARINT && field->kind != FIXED64)
            at = put_varint(at, tail - at);
        *--at = field->tag;
    }
    return at;
}

/* Return whether each message holds whole messages, and not too many in one another. */
static int
nests(const Field *begin, const Field *end, int depth)
{
    while (end > begin) {
        const Field *field = --end;
        if (field->kind != MESSAGE)
            continue;
        if (field->inside < 0 || field->inside > field - begin || depth == 0)
            return 0;
        end -= field->inside;
        if (!nests(end, field, depth - 1))
            return 0;
    }
    return 1;
}

/* Add up the most bytes that all rows may take. Return what contradicts, or NULL. */
static const char *
measure_field(const Field *field, Py_ssize_t rows, Py_ssize_t *bytes)
{
    if (field->tag < 1 || field->tag > 127)
        return "a tag has one byte";
    if (field->kind == DECIMAL && (field->inside < 0 || field->inside > MAX_SCALE))
        return "a scale is out of range";
    if (field->present.buf && field->present.len != rows)
        return "a mask has another number of rows";
    if (field->values.len != (rows + (field->kind == BYTES)) * ITEM_BYTES[field->kind])
        return "a field has another number of rows";
    *bytes += rows * MAX_ROW_BYTES[field->kind];
    if (field->kind == BYTES) {
        const int32_t *places = field->values.buf;
        for (Py_ssize_t row = 0; row < rows; row++)
            if (places[row] > places[row + 1])
                return "offsets do not ascend";
        if (places[0] < 0 || places[rows] > field->content.len)
            return "an offset is out of range";
        *bytes += places[rows] - places[0];
    }
    return NULL;
}

static PyObject *
encode_rows(const Field *fields, Py_ssize_t count, Py_ssize_t rows)
{
    const char *contradiction = NULL;
    Py_ssize_t bytes = 0;
    if (!nests(fields, fields + count, MAX_DEPTH))
        contradiction = "messages do not nest";
    for (Py_ssize_t i = 0; i < count && !contradiction; i++)
        contradiction = measure_field(&fields[i], rows, &bytes);
    if (contradiction)
        return PyErr_Format(PyExc_ValueError, "%s", contradiction);
    if (bytes > MAX_BYTES)
        return PyErr_Format(PyExc_OverflowError, "%zd rows are too many at once", rows);
    PyObject *content = NEW_BYTES(bytes), *offsets = NEW_BYTES(4 * (rows + 1));
    if (content == NULL || offsets == NULL) {
        Py_XDECREF(content);
        Py_XDECREF(offsets);
        return NULL;
    }
    uint8_t *octets = BYTES_OF(uint8_t, content), *at = octets + bytes;
    int32_t *places = BYTES_OF(int32_t, offsets);
    RELEASE_GIL(bytes);
    for (Py_ssize_t row = rows - 1; row >= 0; row--) {
        places[row + 1] = at - octets;
        at = put_fields(fields, fields + count, row, at);
    }
    Py_ssize_t start = at - octets;
    places[0] = start;
    for (Py_ssize_t row = 0; row <= rows; row++)
        places[row] -= start;
    TAKE_GIL();
    return Py_BuildValue("NnN", content, start, offsets);
}

PyObject *
encode_fields(PyObject *module, PyObject *args)
{
    PyObject *sources, *result = NULL;
    Py_ssize_t rows, read = 0;
    if (!PyArg_ParseTuple(args, "O!n:encode_fields", &PyTuple_Type, &sources, &rows))
        return NULL;
    Py_ssize_t count = PyTuple_Size(sources);
    if (rows < 0 || rows >= INT32_MAX || count > MAX_FIELDS)
        return PyErr_Format(PyExc_ValueError, "%zd fields of %zd rows", count, rows);
    Field *fields = PyMem_Calloc(count + 1, sizeof *fields);
    if (fields == NULL)
        return PyErr_NoMemory();
    for (; read < count; read++) {
        Field *field = &fields[read];
        PyObject *source = PyTuple_GetItem(sources, read);
        if (!PyTuple_Check(source)) {
            PyErr_SetString(PyExc_ValueError, "a field is a tuple");
            break;
        }
        if (!PyArg_ParseTuple(source, "iinz*z*z*", &field->kind, &field->tag, &field->inside,
                              &field->values, &field->content, &field->present))
            break;
        if (field->kind < 0 || field->kind >= KINDS) {
            PyErr_SetString(PyExc_ValueError, "no such kind of field");
            read++;
            break;
        }
    }
    if (!PyErr_Occurred())
        result = encode_rows(fields, count, rows);
    while (read--) {
        PyBuffer_Release(&fields[read].values);
        PyBuffer_Release(&fields[read].content);
        PyBuffer_Release(&fields[read].present);
    }
    PyMem_Free(fields);
    return result;
}
