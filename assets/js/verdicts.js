/* Verdicts on the audit page. */
"use strict";
