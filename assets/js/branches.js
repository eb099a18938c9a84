/* The tree of branches. */
"use strict";
