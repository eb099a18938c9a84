"""The web pages: routes in ``main``, one module per page, parts under ``components``, wording in ``presenters``."""
