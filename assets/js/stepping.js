/* Run until, and what survives a reload. */
"use strict";
