/* The batches page. */
"use strict";
