/* The review page. */
"use strict";
