/* The compare page. */
"use strict";
