/* The swap page. */
"use strict";
