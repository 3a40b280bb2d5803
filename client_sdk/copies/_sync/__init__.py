"""A sync: what each copy asks for, what comes, how it is put into the file and verified."""
