-- Rows of sandboxes hold the whole record of their build instead of a summary. Rows of both forms are read, so none is changed; the
-- number keeps older servers from opening this database.
SELECT 1;
