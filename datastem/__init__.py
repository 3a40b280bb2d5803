"""What a row is: types, schema, time, the door rows come through, and the blocks they stand in."""
